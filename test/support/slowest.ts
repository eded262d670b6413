/** The test files that take minutes, the slowest first. They begin first, so that in the end none is left to run alone. */
export const SLOWEST: readonly string[] = [
  'lab/soak/soak',
  'lab/attacks/side-by-side',
  'lab/soak/world',
  'lab/fuzz',
  'docs/commands',
  'properties/prepaid',
  'ops/incidents',
  'process/replaced',
  'installing/image',
  'sandbox/voice/hostile-texts',
];
