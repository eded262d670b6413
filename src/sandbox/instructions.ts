import { resolve, sep } from 'node:path';
import type { TtsModelsResponse } from '../contract/types.ts';
import { counted } from '../lib/counted.ts';
import { formatUsd } from '../lib/money.ts';
import { RUN_SPEECHGATE } from '../lib/run-speechgate.ts';
import type { SandboxFile } from './sandbox-file.ts';

/** Of pino. */
const BELOW_WARNING = ['trace', 'debug', 'info'];

interface Offered {
  readonly voice: string;
  readonly otherVoice: string;
  readonly otherModel: string;
}

export async function readOffered(baseUrl: string): Promise<Offered> {
  const { models, defaultModel } = (await (await fetch(`${baseUrl}/tts/models`)).json()) as TtsModelsResponse;
  const { defaultVoice, voices } = models.find(({ id }) => id === defaultModel) as (typeof models)[number];
  const others = models.filter(({ id, available }) => available && id !== defaultModel);
  return {
    voice: defaultVoice,
    otherVoice: voices.findLast(({ id }) => id !== defaultVoice)?.id ?? defaultVoice,
    otherModel: others[0]?.id ?? defaultModel,
  };
}

interface Places {
  readonly dataDir: string;
  readonly databaseHome: string | undefined;
  readonly hasScripts: boolean;
}

const isDefault = (dataDir: string): boolean => dataDir === resolve('./data');

const connectCommand = (dataDir: string): string =>
  `${RUN_SPEECHGATE} connect --sandbox${isDefault(dataDir) ? '' : ` '${dataDir}'`}`;

/** What a started sandbox prints. @param takenPort the port that it should have had */
export function firstScreen(
  { baseUrl, creditAccount, chain }: SandboxFile,
  { dataDir, takenPort, moreFile }: { dataDir: string; takenPort: number | undefined; moreFile: string },
): string {
  const chainWarning = `Its chain has the id of Base, ${chain?.chainId}: use only the demo wallet, never one with real money.\n`;
  return `
speechgate listens on ${baseUrl}${takenPort === undefined ? '' : `, since port ${takenPort} is taken`}
  hear it  ${connectCommand(dataDir)} && ${RUN_SPEECHGATE} say "Hello" --play
  by curl  curl -fsS -o hello.mp3 ${baseUrl}/tts -H 'x-credit-account: ${creditAccount}' -H 'content-type: text/plain' -d Hello
  page     ${baseUrl}
  top-up   ${baseUrl}/top-up?amount=500&account=${creditAccount} (takes no real money)
  more     ${moreFile} has commands for USDC, jobs and refunds
${chain ? chainWarning : ''}Ctrl-C stops the sandbox. Each request prints a line.
`;
}

/** A log line of a request as people read it. Warnings stay as they are; everything else is empty. */
export function lineForPeople(json: string, showsRequests: boolean): string {
  const { level, msg, method, route, status, end, characters, chargedMicroUsd, ms } = JSON.parse(json);
  if (msg !== 'request') return BELOW_WARNING.includes(level) ? '' : json;
  if (!showsRequests) return '';
  return [
    new Date().toTimeString().slice(0, 8),
    method === null ? '(invalid HTTP)' : `${method} ${route ?? '(no such path)'}`,
    status ?? end,
    characters !== undefined && counted(characters, 'character'),
    chargedMicroUsd !== undefined && `$${formatUsd(BigInt(chargedMicroUsd))}`,
    ms !== undefined && `${Math.round(ms)} ms`,
  ]
    .filter(Boolean)
    .join('  ')
    .concat('\n');
}

/** Commands to try, for a file. */
export function instructions(
  { baseUrl, creditAccount, wallet, checkoutUrl }: SandboxFile,
  { dataDir, databaseHome, hasScripts }: Places,
  { voice, otherVoice }: Offered,
): string {
  const npmRun = hasScripts ? `${isDefault(dataDir) ? '' : `DATA_DIR='${dataDir}' `}npm run` : undefined;
  return `\
Say something, paid from the demo account:
  curl -fsS -o hello.mp3 -D - ${baseUrl}/tts -H 'x-credit-account: ${creditAccount}' \\
    -H 'content-type: application/json' -d '{"text":"Hello world, this is speech paid by the character.","voice":"${voice}"}'

The same from the query, at another pace:
  curl -fsS -o slow.mp3 '${baseUrl}/tts?text=Hello+world&voice=${otherVoice}&speed=0.75' -H 'x-credit-account: ${creditAccount}'

A long text as a job, to be fetched when it is ready (links.status, then links.audio):
  curl -fsS '${baseUrl}/tts?async=true' -H 'x-credit-account: ${creditAccount}' -H 'content-type: text/plain' -d 'Fetch me later.'

What is left in the account:
  curl -fsS ${baseUrl}/credits/${creditAccount}

Buy credit yourself, in a browser, on a checkout that takes no real money:
  ${baseUrl}/top-up?amount=500&account=${creditAccount}

Refund a purchase as the card processor's dashboard does, or dispute one as the buyer's bank does:
  ${checkoutUrl}/dashboard

Say something by the command; --pay x402 or --pay prepaid pays from the demo wallet:
  ${connectCommand(dataDir)}
  ${RUN_SPEECHGATE} say 'Hello world' --out hello.mp3

${wallet ? usdcInstructions(baseUrl, wallet.address, npmRun) : ''}${npmRun ? demoInstructions(npmRun) : ''}Models, voices and prices:
  curl -fsS ${baseUrl}/tts/models

Feedback signed by a wallet (POST /feedback) is mailed to ${dataDir}/mail. Steps for programs, under agentGuide:
  curl -fsS ${baseUrl}/docs

${whereDataIs(dataDir, databaseHome)}
`;
}

function whereDataIs(dataDir: string, databaseHome: string | undefined): string {
  if (databaseHome === undefined)
    return `The database is that of SANDBOX_DATABASE_URL; all other data is in ${dataDir}.`;
  if (databaseHome.startsWith(`${dataDir}${sep}`)) return `All data is in ${dataDir}.`;
  return `The database is in ${databaseHome}, and all other data in ${dataDir}. Delete both or neither.`;
}

const usdcInstructions = (baseUrl: string, address: string, npmRun: string | undefined): string => `\
Pay in USDC on a local chain, once for each request. This is what an x402 client is asked to sign:
  curl -sS -D - '${baseUrl}/x402/tts?text=Hello+world'

Or deposit, and pay each request by a signature. This is what a client is asked to sign for a deposit of 1 USD:
  curl -sS -D - ${baseUrl}/x402/deposit -H 'content-type: application/json' -d '{"amountMicroUsd":1000000}'

${npmRun ? signedInstructions(address, npmRun) : ''}`;

const signedInstructions = (address: string, npmRun: string): string => `\
Deposit from the demo wallet, speak, read the balance; without "| sh" the signed command is shown and not run:
  ${npmRun} -s prepaid -- POST /x402/deposit '{"amountMicroUsd":1000000}' | sh
  ${npmRun} -s prepaid -- POST /x402/tts '{"text":"Hello world, paid by a signature."}' | sh
  ${npmRun} -s prepaid -- GET '/x402/tts?text=Hello+again' | sh
  ${npmRun} -s prepaid -- GET /x402/accounts/${address} | sh

`;

const demoInstructions = (npmRun: string): string => `\
See each payment flow once:
  ${npmRun} demo

`;
