// An authorization server, oidc-provider, on 127.0.0.1: `authorization_server.mjs PACKAGES PORT SECONDS`, where PACKAGES is
// the folder that has node_modules, port 0 is a free one, and an access token lives for so many seconds. Prints its
// issuer, then a line for each token that it grants or destroys. Any password will do, and the login is the subject.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [packages, port, seconds] = process.argv.slice(2);
const { resolve } = createRequire(join(packages, 'here.js'));
console.warn = () => {}; // it says that its pages are for development, which this is
console.info = () => {};
const { default: Provider } = await import(pathToFileURL(resolve('oidc-provider')));

const on = { enabled: true };
const server = createServer();
server.listen(Number(port), '127.0.0.1', () => {
    const provider = new Provider(`http://127.0.0.1:${server.address().port}`, {
        scopes: ['openid', 'offline_access', 'mcp:basic', 'mcp:write'],
        pkce: { required: () => true },
        responseTypes: ['code'],
        rotateRefreshToken: () => true,
        cookies: { keys: ['a key of a test'] },
        clientAuthMethods: ['none', 'client_secret_basic', 'client_secret_post'],
        issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
        findAccount: (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
        features: {
            devInteractions: on,
            registration: on,
            revocation: on,
            deviceFlow: on,
            resourceIndicators: {
                enabled: true,
                useGrantedResource: () => true,
                getResourceServerInfo: (ctx, resource) => ({
                    audience: resource,
                    scope: 'mcp:basic mcp:write',
                    accessTokenTTL: Number(seconds),
                    accessTokenFormat: 'jwt',
                    jwt: { sign: { alg: 'RS256' } },
                }),
            },
        },
    });
    provider.on('grant.success', (ctx) => console.log(`grant ${ctx.oidc.params.grant_type}`));
    provider.on('refresh_token.destroyed', () => console.log('destroyed'));
    provider.on('grant.revoked', () => console.log('revoked'));
    provider.on('server_error', (ctx, error) => console.log(`error ${error.stack}`));
    server.on('request', provider.callback());
    console.log(provider.issuer);
});
