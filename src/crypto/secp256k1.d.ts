/** The part of the native binding that is used here; the package has no types of its own. */
declare module 'secp256k1' {
  const secp256k1: {
    /** The public key, uncompressed in 65 bytes when asked so. Throws when there is none. */
    ecdsaRecover(signature: Uint8Array, recoveryId: number, digest: Uint8Array, compressed: boolean): Uint8Array;
  };
  export default secp256k1;
}
