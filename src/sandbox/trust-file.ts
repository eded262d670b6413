import { join } from 'node:path';
import { replaceOwnFile } from '../lib/private-files.ts';
import { parseSigningKeys } from '../x402/signing-keys.ts';

/**
 * Writes DATA_DIR/trust.json: the public keys that callers of this sandbox pin, as `trust` of the client takes them. With
 * real money they come from the operator; here the sandbox is its own.
 * @param signingKeys the text of the gateway's SIGNING_KEYS_FILE
 */
export async function writeTrustFile(dataDir: string, signingKeys: string): Promise<void> {
  const trust = parseSigningKeys(signingKeys, new Date()).map(({ keyId, publicJwk }) => ({
    keyId,
    publicKeyJwk: { kty: 'EC', crv: 'P-256', ...publicJwk },
  }));
  await replaceOwnFile(join(dataDir, 'trust.json'), `${JSON.stringify(trust, null, 2)}\n`);
}
