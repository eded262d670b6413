/** The part of the package that is used; it brings no types of its own. */
declare module 'secp256k1' {
  const secp256k1: {
    /** @throws when the signature fits no key */
    ecdsaRecover(signature: Uint8Array, recoveryId: number, message: Uint8Array, compressed: false): Uint8Array;
  };
  export default secp256k1;
}
