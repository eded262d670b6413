/** Each known extension, with the member that an object must have beside it to be a place where it is read. */
const EXTENSIONS: Record<string, string[]> = {
  'x-edge-headers': ['openapi'],
  'x-edge-responses': ['openapi'],
  'x-service-info': ['openapi'],
  'x-guidance': ['title'],
  'x-payment-info': ['operationId'],
  'x-listed': ['operationId'],
  'x-no-head': ['operationId'],
  'x-rate-limits': ['operationId'],
  'x-body-limit': ['content'],
  'x-set-by': ['schema'],
  'x-text': ['type'],
  'x-error-code': ['type', 'allOf', 'anyOf', 'oneOf'],
  'x-error-hint': ['type', 'allOf', 'anyOf', 'oneOf'],
};

/** Members whose keys are chosen by the contract's author, so that a key `x-…` in them is a name and no extension. */
const NAME_MAPS = new Set([
  'properties',
  'headers',
  'schemas',
  'parameters',
  'responses',
  'requestBodies',
  'securitySchemes',
  'paths',
  'content',
  'x-edge-responses',
]);
const DATA = new Set(['example', 'examples', 'default', 'enum', 'x-text', 'x-error-code']);

/** Adds to `problems` each extension that is unknown, or that stands where nothing reads it. */
export function checkExtensions(node: unknown, path: string, problems: string[], keysAreNames = false): void {
  if (typeof node !== 'object' || node === null) return;
  for (const [key, value] of Object.entries(node)) {
    const here = `${path}/${key}`;
    if (!keysAreNames && key.startsWith('x-')) {
      const places = EXTENSIONS[key];
      if (places === undefined) {
        problems.push(`${here}: unknown extension; known are ${Object.keys(EXTENSIONS).join(', ')}`);
      } else if (!places.some((place) => place in node) || 'in' in node) {
        problems.push(`${here}: ${key} is only read beside ${places.join(' or ')}, and not in a parameter object`);
      }
    }
    if (keysAreNames || !DATA.has(key)) {
      const namesBelow = !keysAreNames && NAME_MAPS.has(key) && !Array.isArray(value);
      checkExtensions(value, here, problems, namesBelow);
    }
  }
}
