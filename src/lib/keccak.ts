import { createKeccak } from 'hash-wasm';

const hasher = await createKeccak(256);

/** Ethereum's keccak-256, 32 bytes; not the SHA3-256 of node:crypto. */
export const keccak256 = (bytes: Uint8Array): Uint8Array => hasher.init().update(bytes).digest('binary');
