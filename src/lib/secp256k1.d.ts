declare module 'secp256k1' {
  const secp256k1: {
    ecdsaRecover(signature: Uint8Array, recoveryId: number, digest: Uint8Array, compressed: boolean): Uint8Array;
  };
  export default secp256k1;
}
