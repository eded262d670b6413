/** Loaded when it is needed, and a module of its own, so that bundlers leave out the rest of viem. */
export { keccak256, toHex } from 'viem/utils';
