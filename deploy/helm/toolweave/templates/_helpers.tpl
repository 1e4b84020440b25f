{{- define "toolweave.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "toolweave.selector" -}}
app.kubernetes.io/name: toolweave
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "toolweave.labels" -}}
{{ include "toolweave.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{- define "toolweave.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "toolweave.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "toolweave.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "toolweave.spread" -}}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "toolweave.selector" . | nindent 6 }}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "toolweave.selector" . | nindent 6 }}
{{- end }}

{{/* The Redis of the chart: database 0 for gateways, 1 for runs. Without it the secrets have these variables. */}}
{{- define "toolweave.redisEnv" -}}
{{- if .Values.redis.enabled -}}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: { name: {{ .Values.redis.secretName }}, key: REDIS_PASSWORD }
- name: REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "toolweave.name" . }}-redis:6379/0
- name: TOOLWEAVE_BACKEND
  value: redis://:$(REDIS_PASSWORD)@{{ include "toolweave.name" . }}-redis:6379/1
{{- end }}
{{- end }}
