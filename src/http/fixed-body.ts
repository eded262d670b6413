/** Beyond this length bytes are sent as they lie; a shorter text goes out with the headers in one write. */
const LARGE = 16_384;

const fixed = new WeakMap<object, { payload: string | Buffer | undefined }>();

/** Marks a JSON body that never changes, so that it is serialized once. */
export function fixedBody<Body extends object>(body: Body): Body {
  fixed.set(body, { payload: undefined });
  return body;
}

/** A JSON body whose text is known already. @param text the whole of it, where the body holds a part only */
export function serializedBody<Body extends object>(body: Body, text: string): Body {
  fixed.set(body, { payload: text });
  return body;
}

/** A JSON body as it is sent; every answer with the same fixed body shares its bytes. */
export function payloadOf(body: object, serialize: (body: unknown) => string): string | Buffer {
  const known = fixed.get(body);
  if (!known) return serialize(body);
  known.payload ??= largeAsBytes(serialize(body));
  return known.payload;
}

const largeAsBytes = (text: string): string | Buffer => (text.length < LARGE ? text : Buffer.from(text));
