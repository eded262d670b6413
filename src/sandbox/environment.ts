import { isLocalUrl } from '../lib/loopback.ts';

/** Settings that lead to parts, money or secrets outside the sandbox. */
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

/** A sandbox overrides these settings, because its shell may be that of production (R63). */
export function sandboxSettings(
  shell: NodeJS.ProcessEnv,
  ownParts: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const { BASE_URL = '' } = shell;
  return {
    ...Object.fromEntries(OUTSIDE.map((name) => [name, ''])),
    BASE_URL: isLocalUrl(BASE_URL) ? BASE_URL : '',
    ...ownParts,
  };
}
