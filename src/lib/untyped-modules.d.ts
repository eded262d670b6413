declare module 'secp256k1' {
  const secp256k1: {
    ecdsaRecover(signature: Uint8Array, recoveryId: number, digest: Uint8Array, compressed: boolean): Uint8Array;
  };
  export default secp256k1;
}

declare module 'fs-native-extensions' {
  /** Locks this open file description until `unlock`, close or exit. Returns false while another one has the lock. */
  export function tryLock(fd: number): boolean;
  export function unlock(fd: number): void;
}
