"""The completion scripts for each shell, and their installation.

Each calls the command itself with `_TOOLWEAVE_COMPLETE`, which names the shell and so the form of the output.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import shellingham  # pyright: ignore[reportMissingTypeStubs]

from toolweave.cli._exit_codes import CommandError

_BASH = r"""
_toolweave_completion() {
    local IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _TOOLWEAVE_COMPLETE=complete_bash $1 ) )
    if [[ "${COMPREPLY[0]}" == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _toolweave_completion toolweave
"""
_ZSH = r"""
#compdef toolweave

_toolweave_completion() {
    local -a found suffix
    found=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
        _TOOLWEAVE_COMPLETE=complete_zsh toolweave)}")
    if [[ -n "${found[1]}" ]]; then
        [[ "${found[1]%%:*}" == *= ]] && suffix=(-S '')
        _describe -V toolweave found "${suffix[@]}"
    else
        _files
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _toolweave_completion "$@"
else
    compdef _toolweave_completion toolweave
fi
"""
_FISH = r"""
function _toolweave_completion
    set -l found (env _TOOLWEAVE_COMPLETE=complete_fish COMP_WORDS=(commandline -cp | string collect) toolweave)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command toolweave --no-files --arguments "(_toolweave_completion)"
"""
_POWERSHELL = r"""
Import-Module PSReadLine
Set-PSReadLineKeyHandler -Chord Tab -Function MenuComplete
Register-ArgumentCompleter -Native -CommandName toolweave -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $Env:_TOOLWEAVE_COMPLETE = "complete_powershell"
    $Env:COMP_WORDS = $commandAst.ToString() + $(if ($wordToComplete) { "" } else { " " })
    toolweave | ForEach-Object {
        $word, $said = $_ -Split ":::"
        [System.Management.Automation.CompletionResult]::new($word, $word, 'ParameterValue', $said)
    }
    $Env:_TOOLWEAVE_COMPLETE = ""
    $Env:COMP_WORDS = ""
}
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL, "pwsh": _POWERSHELL}


def script() -> str:
    """Return the script for the shell that started this process.

    Raises:
        CommandError: The shell has no script.
    """
    return _SCRIPTS[_shell()].strip()


def install() -> str:
    """Install the script for the shell that started this process, and return a description of that.

    Raises:
        CommandError: The shell has no script.
    """
    shell = _shell()
    path = _placed(shell, f"{_SCRIPTS[shell].strip()}\n")
    return f"{shell} completion is in {path}; it works in terminals that are opened from now on"


def _shell() -> str:
    try:
        name = str(shellingham.detect_shell()[0])  # pyright: ignore[reportUnknownMemberType]
    except shellingham.ShellDetectionFailure:
        name = ""
    if name not in _SCRIPTS:
        known = "bash, zsh, fish and PowerShell"
        raise CommandError(f"completion is not available for {name or 'this shell'}, only for {known}")
    return name


def _placed(shell: str, text: str) -> Path:
    home = Path.home()
    match shell:
        case "bash":
            path = home / ".bash_completions" / "toolweave.sh"
            _append(home / ".bashrc", f"source '{path}'")
        case "zsh":
            path = home / ".zfunc" / "_toolweave"
            _append(home / ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
        case "fish":
            path = home / ".config" / "fish" / "completions" / "toolweave.fish"
        case _:
            profile = subprocess.run([shell, "-NoProfile", "-Command", "$profile"], capture_output=True, check=True)
            path = Path(profile.stdout.decode(errors="replace").strip())
            _append(path, text)
            return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _append(path: Path, text: str) -> None:
    """Add text to a file that does not have it."""
    if path.is_file():
        before = path.read_text(encoding="utf-8")
    else:
        before = ""
    if text not in before:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{before.rstrip()}\n{text}\n".lstrip(), encoding="utf-8")
