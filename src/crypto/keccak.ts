import { createKeccak } from 'hash-wasm';

const hasher = await createKeccak(256);

/** keccak-256, the hash of Ethereum, in 32 bytes: not the SHA3-256 that node:crypto has. */
export const keccak256 = (bytes: Uint8Array): Uint8Array => hasher.init().update(bytes).digest('binary');
