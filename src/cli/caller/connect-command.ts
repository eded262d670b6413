import { UsageError } from '../usage-error.ts';
import { readBaseUrl } from './base-url.ts';
import { COMMON_OPTIONS, runCommand } from './command.ts';
import { type Connection, keepConnection, readConnection, tryConnection } from './connection.ts';
import { describeSettings } from './describe-settings.ts';
import { flowWord, readFlow } from './flow-word.ts';
import { withProgress } from './progress.ts';
import { readSandboxParts } from './sandbox-parts.ts';
import { readSettings } from './settings.ts';
import { settingsFolder } from './settings-folder.ts';
import { type ConfigChange, readConfig } from './stored-settings.ts';
import { readUsd } from './usd.ts';
import { readWalletKey } from './wallet-key.ts';

const CAPS = [
  ['max-per-call', 'maxPerCall'],
  ['max-per-day', 'maxPerDay'],
  ['max-total', 'maxTotal'],
] as const;
/** What a sandbox gives by itself. */
const OF_SANDBOX = ['wallet', 'account', 'trust', 'fingerprint'] as const;
const NO_CAP = 'none';
type Caps = { readonly [Option in (typeof CAPS)[number][0]]?: string | undefined };

const OPTIONS = {
  ...COMMON_OPTIONS,
  sandbox: { type: 'boolean', default: false },
  insecure: { type: 'boolean', default: false },
  wallet: { type: 'string' },
  account: { type: 'string' },
  trust: { type: 'string' },
  fingerprint: { type: 'string' },
  pay: { type: 'string' },
  'max-per-call': { type: 'string' },
  'max-per-day': { type: 'string' },
  'max-total': { type: 'string' },
} as const;

/** `speechgate connect [URL]` */
await runCommand({
  usage: `speechgate connect [URL], or speechgate connect --sandbox [DATA_DIR]
Sets the service, and what it is paid with; without anything, shows what is set. It is kept in ~/.config/speechgate
(SPEECHGATE_CONFIG_DIR), readable by you only.

  URL              the service, such as https://speech.example
  --sandbox        all from the sandbox with this DATA_DIR (otherwise ./data): service, account, wallet, keys
  --wallet create  makes a wallet; --wallet FILE takes the private key of one from a file, - from standard input
  --account FILE   the id of a credit account, from a file, - from standard input; speechgate top-up keeps it by itself
  --trust FILE     the service's public keys as its operator gave them out: a JWK Set
  --fingerprint F  or the fingerprint of its current one
  --insecure       allows http elsewhere than on this machine, from now on for this service
  --pay FLOW       how is paid where nothing else is said: card, x402 or prepaid
  --max-per-call USD, --max-per-day USD, --max-total USD
                   what may be spent by all commands together; none takes the cap away`,
  example: 'speechgate connect https://speech.example --wallet create --max-per-day 1',
  options: OPTIONS,
  maxWords: 1,
  run: async (values, [word], output) => {
    const { sandbox, insecure } = values;
    const folder = settingsFolder(process.env);
    const isSaid = Object.values(values).some((value) => typeof value === 'string');
    const isChange = word !== undefined || isSaid || sandbox || insecure;
    if (isChange) {
      const connection = { ...(await parts()), config: configOf(values) };
      await withProgress(`Asking ${connection.baseUrl}`, output.isJson, tryConnection(folder, connection));
      await keepConnection(folder, connection);
    }
    const { document, lines } = await describeSettings(await readSettings(process.env));
    output.done(document, lines);

    async function parts(): Promise<Omit<Connection, 'config'>> {
      if (!sandbox) return readConnection(folder, await urlOf(folder, word), values);
      const surplus = OF_SANDBOX.find((option) => values[option] !== undefined);
      if (surplus) throw new UsageError(`--sandbox has its own account, wallet and keys. Leave --${surplus} out.`);
      const { baseUrl, creditAccount: account, wallet, trust } = await readSandboxParts(word);
      const walletKey = wallet ? readWalletKey(wallet.privateKey, '--sandbox') : undefined;
      return { baseUrl, account, walletKey, trust, isInsecure: insecure };
    }
  },
});

async function urlOf(folder: string, word: string | undefined): Promise<string> {
  const url = word ?? (await readConfig(folder)).url;
  if (url === undefined) throw new UsageError('URL is missing: name the service, such as https://speech.example.');
  return readBaseUrl(url, 'URL');
}

/** What changes in config.json, once it can be read. */
function configOf(values: { readonly pay?: string | undefined } & Caps): ConfigChange {
  let change: ConfigChange = values.pay === undefined ? {} : { pay: flowWord(readFlow(values.pay, '--pay')) };
  for (const [option, member] of CAPS) {
    const text = values[option];
    if (text === undefined) continue;
    if (text !== NO_CAP) readUsd(text, `--${option}`);
    change = { ...change, [member]: text === NO_CAP ? undefined : text };
  }
  return change;
}
