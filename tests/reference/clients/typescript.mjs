// The official TypeScript SDK's client, its first version (`sdk`) or its second (`client`): uses a server in every way
// and prints what it saw as JSON. `typescript.mjs PACKAGES sdk|client ERA TARGET [ARGUMENT...]`, where PACKAGES is the
// folder that has node_modules, and the target is a URL or a command.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, version, era, target, ...args] = process.argv.slice(2);
const { resolve } = createRequire(join(packages, 'here.js'));
const load = (name) => import(pathToFileURL(resolve(`@modelcontextprotocol/${name}`)));

const first = version === 'sdk';
const { Client } = await load(first ? 'sdk/client/index.js' : 'client');
const { StdioClientTransport } = await load(first ? 'sdk/client/stdio.js' : 'client/stdio');
const { StreamableHTTPClientTransport } = await load(first ? 'sdk/client/streamableHttp.js' : 'client');
const elicitation = first ? (await load('sdk/types.js')).ElicitRequestSchema : 'elicitation/create';

const negotiation = { mode: era === 'legacy' ? 'legacy' : { pin: '2026-07-28' } };
const client = new Client(
    { name: 'foreign', version: '1.0.0' },
    { capabilities: { elicitation: {} }, ...(first ? {} : { versionNegotiation: negotiation }) },
);
client.setRequestHandler(elicitation, async () => ({ action: 'accept', content: { name: 'Ada' } }));
const transport = target.includes('://')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args });
await client.connect(transport);

const progress = [];
const onprogress = (one) => progress.push([one.progress, one.total]);
const call = async (name, given, options = {}) => {
    const params = { name, arguments: given };
    const result = first ? await client.callTool(params, undefined, options) : await client.callTool(params, options);
    return result.content[0].text;
};
const seen = {
    tools: (await client.listTools()).tools.map((tool) => tool.name),
    sum: await call('add', { a: 2, b: 3 }),
    counted: await call('count', { to: 3 }, { onprogress }),
    progress,
    greeting: await call('greet', {}),
    failure: await call('fail', {}),
    resource: (await client.readResource({ uri: 'notes://notes/loom' })).contents[0].text,
    prompt: (await client.getPrompt({ name: 'explain', arguments: { topic: 'weft' } })).messages[0].content.text,
};
seen.version = first ? (transport.protocolVersion ?? null) : client.getNegotiatedProtocolVersion();
console.log(JSON.stringify(seen));
await client.close();
