/** What leads to parts, money or secrets outside. */
const OUTSIDE = [
  'AUDIO_STORE',
  'QUOTE_SECRET',
  'SIGNING_KEYS_FILE',
  'X402_ASSET',
  'X402_ASSET_NAME',
  'X402_ASSET_VERSION',
  'X402_FACILITATOR_AUTH',
  'X402_FACILITATOR_URL',
  'X402_NETWORK',
  'X402_PAY_TO',
  'X402_RPC_URL',
];
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/**
 * The settings that a sandbox sets whatever its shell says, which may be that of production (R63): its own parts, and
 * blanks for what would lead outside.
 */
export function sandboxSettings(
  shell: NodeJS.ProcessEnv,
  ownParts: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const { BASE_URL = '' } = shell;
  const isHere = URL.canParse(BASE_URL) && LOOPBACK.test(new URL(BASE_URL).hostname);
  return {
    ...Object.fromEntries(OUTSIDE.map((name) => [name, ''])),
    BASE_URL: isHere ? BASE_URL : '',
    ...ownParts,
  };
}
