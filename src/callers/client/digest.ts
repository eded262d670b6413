/** JSON for a header, in Base64. */
export const encodeJson = (value: object): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))));

/** @throws DOMException, SyntaxError */
export function decodeJson<T>(header: string): T {
  return JSON.parse(new TextDecoder().decode(decodeBase64(header)));
}

/** Also of the form for URLs. @throws DOMException */
export const decodeBase64 = (text: string) =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (character) => character.charCodeAt(0));

/** SHA-256 of the text's UTF-8, in hexadecimal. */
export async function sha256(text: string): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))).slice(2);
}

export const toHex = (bytes: Uint8Array): `0x${string}` =>
  `0x${[...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
