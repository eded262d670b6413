import { writeFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { createSecureContext, TLSSocket } from 'node:tls';
import type { Test } from 'tap';
import { serve } from './listening.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** Of nobody: it signs only what is below. */
const KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgYstPAJfgMG1mHzG6
D1s9m2NvkleuybbB7fkTHSnma96hRANCAAQKMA3ZGrehweJ69wtDHgDTHqRqKJU7
1/QmuwKvoO9x8STHbLABv2Kb++sZsQoWPCM/z+uCuIDmu3+CACEPzVJR
-----END PRIVATE KEY-----
`;

/** For 127.0.0.1, of one day in 2020. */
export const EXPIRED = `-----BEGIN CERTIFICATE-----
MIIBZDCCAQugAwIBAgIBATAKBggqhkjOPQQDAjAbMRkwFwYDVQQDDBBkYXRhYmFz
ZS5leGFtcGxlMB4XDTIwMDEwMTAwMDAwMFoXDTIwMDEwMjAwMDAwMFowGzEZMBcG
A1UEAwwQZGF0YWJhc2UuZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BAowDdkat6HB4nr3C0MeANMepGoolTvX9Ca7Aq+g73HxJMdssAG/Ypv76xmxChY8
Iz/P64K4gOa7f4IAIQ/NUlGjQDA+MA8GA1UdEQQIMAaHBH8AAAEwDAYDVR0TBAUw
AwEB/zAdBgNVHQ4EFgQUeE5F/C7FzQ+BsA6571hxGY1tBuAwCgYIKoZIzj0EAwID
RwAwRAIgaFmAKj7Tf1HqB3+tH7cN1jC2KnYM6A0m6ZCqLBO9j/8CIFT4ks40r+8r
obuy8Zc6jZyb39QfIttf/Q190Bwe1Hug
-----END CERTIFICATE-----
`;

/** For 127.0.0.1 and a hundred years. */
export const SELF_SIGNED = `-----BEGIN CERTIFICATE-----
MIIBnjCCAUSgAwIBAgIUfbjGaRhY2h3al+2rMI7JfwOBFzwwCgYIKoZIzj0EAwIw
GzEZMBcGA1UEAwwQZGF0YWJhc2UuZXhhbXBsZTAgFw0yNjExMjgyMzA1MTBaGA8y
MTI2MTEwNDIzMDUxMFowGzEZMBcGA1UEAwwQZGF0YWJhc2UuZXhhbXBsZTBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABAowDdkat6HB4nr3C0MeANMepGoolTvX9Ca7
Aq+g73HxJMdssAG/Ypv76xmxChY8Iz/P64K4gOa7f4IAIQ/NUlGjZDBiMB0GA1Ud
DgQWBBR4TkX8LsXND4GwDrnvWHEZjW0G4DAfBgNVHSMEGDAWgBR4TkX8LsXND4Gw
DrnvWHEZjW0G4DAPBgNVHRMBAf8EBTADAQH/MA8GA1UdEQQIMAaHBH8AAAEwCgYI
KoZIzj0EAwIDSAAwRQIhALiJH7YXEEQcqI1TSyJQTjUr7ePlwAATUNyHKIDAtQ4u
AiAIird1U/N8O92urQzYNw1qSaSmm+aRStFJ01L3E2QJNg==
-----END CERTIFICATE-----
`;

/** What a server makes of a client that asks for TLS, as PostgreSQL's protocol has it. */
export type Greeting = (client: Socket) => void;

/** Agrees to TLS and shows this certificate. */
const showing =
  (cert: string): Greeting =>
  (client) => {
    const secureContext = createSecureContext({ key: KEY, cert });
    client.write('S');
    new TLSSocket(client, { isServer: true, secureContext }).on('error', () => client.destroy());
  };

/** A server that a client of PostgreSQL asks for TLS, and never comes further. */
export async function startTlsServer(t: Test, greeting: string | Greeting): Promise<{ url: string; ca: string }> {
  const greet = typeof greeting === 'string' ? showing(greeting) : greeting;
  const server = createServer((client) => {
    client.once('data', () => greet(client));
  });
  const folder = await temporaryFolder(t);
  const ca = join(folder, 'ca.pem');
  await writeFile(ca, typeof greeting === 'string' ? greeting : SELF_SIGNED);
  return { url: `postgres://user:secret@${new URL(await serve(t, server)).host}/speech`, ca };
}
