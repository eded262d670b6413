import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, chown, lchown, lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { type Test, test } from 'tap';
import { DamagedBudgetError } from '../../../src/callers/budget/budget-store.ts';
import { openAudioFile, otherFormat } from '../../../src/callers/cli/audio-file.ts';
import { failureOf } from '../../../src/callers/cli/failure.ts';
import { rowsOf } from '../../../src/callers/cli/output.ts';
import { readSecret } from '../../../src/callers/cli/read-values.ts';
import { SavedPurchases, SentPurchase } from '../../../src/callers/cli/saved-purchases.ts';
import {
  AudioLostError,
  InvalidRequestError,
  OutcomeUnknownError,
  PaymentRequiredError,
  type PendingPurchase,
  RateLimitedError,
  type Receipt,
  type Speech,
  UnreachableError,
  UntrustedError,
} from '../../../src/callers/client/index.ts';
import { serviceError } from '../../../src/callers/client/service-error.ts';
import { streamedSpeech } from '../../../src/callers/client/speech.ts';
import { UsageError } from '../../../src/lib/arguments.ts';
import { FileBusyError } from '../../../src/lib/file-lock.ts';
import { ForeignFileError } from '../../../src/lib/private-files.ts';
import { projectFile } from '../../support/project.ts';
import { mpegFrames, silentMp3, silentWav } from '../../support/silent-audio.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const NO_RECEIPT = {} as Receipt;

/** Audio in two parts, the second of which may fail. */
const audio = (fault?: Error) => {
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(Buffer.from('half ')),
    pull: (controller) => {
      if (fault) return controller.error(fault);
      controller.enqueue(Buffer.from('whole'));
      controller.close();
    },
  });
  return streamedSpeech(stream, 'audio/mpeg', NO_RECEIPT);
};

test('audio replaces a file only when complete, also through a link', async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, 'hello.mp3');
  await writeFile(path, 'former');
  await symlink(path, join(folder, 'link.mp3'));
  const file = await openAudioFile(join(folder, 'link.mp3'), process.stdout);
  t.equal(await file.write(audio()), 10);
  await file.close();
  t.equal(await readFile(path, 'utf8'), 'half whole');
  t.ok((await lstat(join(folder, 'link.mp3'))).isSymbolicLink());
  t.strictSame((await readdir(folder)).sort(), ['hello.mp3', 'link.mp3']);
});

test('audio that breaks off keeps the old file and leaves no other', async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, 'hello.mp3');
  await writeFile(path, 'former');
  const file = await openAudioFile(path, process.stdout);
  await t.rejects(file.write(audio(new Error('broken off'))), /broken off/);
  await file.close();
  t.equal(await readFile(path, 'utf8'), 'former');
  t.strictSame(await readdir(folder), ['hello.mp3']);
});

test('a device is written to and never replaced', { skip: process.platform === 'win32' }, async (t) => {
  const file = await openAudioFile('/dev/null', process.stdout);
  t.equal(await file.write(audio()), 10);
  await file.close();
  t.ok((await lstat('/dev/null')).isCharacterDevice());
});

const VARIABLE = Buffer.concat([silentMp3(240), mpegFrames([0xff, 0xfb, 0x54, 0xc4])]);
const streamedWav = () => {
  const wav = silentWav(100);
  for (const at of [4, 40]) wav.writeUInt32LE(0xffffffff, at);
  return wav;
};
const streamed = (bytes: Uint8Array, contentType: Speech['contentType']) =>
  streamedSpeech(new Blob([bytes as Uint8Array<ArrayBuffer>]).stream(), contentType, NO_RECEIPT);

test('a whole WAV has its real sizes, and a file its length in its header', async (t) => {
  const path = join(await temporaryFolder(t), 'hello');
  const write = async (speech: Speech) => {
    const file = await openAudioFile(path, process.stdout);
    await file.write(speech);
    await file.close();
    return readFile(path);
  };
  t.strictSame(Buffer.from(await streamed(streamedWav(), 'audio/wav').bytes()), silentWav(100));
  t.strictSame(await write(streamed(streamedWav(), 'audio/wav')), silentWav(100));
  t.ok((await write(streamed(VARIABLE, 'audio/mpeg'))).includes('Xing'));
  await rm(path);
  const saved = new SavedPurchases(await temporaryFolder(t));
  await saved.saveAudio('one', { contentType: 'audio/wav', bytes: streamedWav() });
  await saved.moveAudio('one', path, process.stdout);
  t.strictSame(await readFile(path), silentWav(100));
});

test('a WAV on standard output has its real sizes, and MP3 flows as it comes', async (t) => {
  for (const [speech, expected] of [
    [streamed(streamedWav(), 'audio/wav'), silentWav(100)],
    [streamed(VARIABLE, 'audio/mpeg'), VARIABLE],
  ] as const) {
    const stdout = Object.assign(new PassThrough(), { isTTY: false });
    await (await openAudioFile('-', stdout)).write(speech);
    stdout.end();
    t.strictSame(await buffer(stdout), expected);
  }
});

test('a file whose extension is that of another format is named', async (t) => {
  for (const path of ['a.MP3', 'a', '/dev/null', 'v1.2', '-']) t.equal(otherFormat(path, 'audio/mpeg'), '');
  t.equal(otherFormat('hello.mp3', 'audio/wav'), '. The audio is WAV, so give the file the ending .wav');
  for (const path of ['b/a.ogg', 'a.Opus'])
    t.equal(otherFormat(path, 'audio/mpeg'), '. The audio is MP3, so give the file the ending .mp3', path);
});

const isRoot = process.geteuid?.() === 0;
const OTHER_UID = 54_321;

test('a link or pipe of another user is neither followed nor written to', {
  skip: !isRoot && 'only root can plant what belongs to another user',
}, async (t) => {
  const folder = await temporaryFolder(t);
  const secret = join(folder, 'secret');
  await mkdir(join(folder, 'home'));
  for (const [name, target] of [
    ['file.mp3', secret],
    ['new.mp3', join(folder, 'home', 'new')],
    ['folder', join(folder, 'home')],
  ] as const) {
    await symlink(target, join(folder, name));
    await lchown(join(folder, name), OTHER_UID, OTHER_UID);
  }
  await symlink(join(folder, 'file.mp3'), join(folder, 'own-to-foreign.mp3'));
  await writeFile(secret, 'former');
  execFileSync('mkfifo', [join(folder, 'pipe')]);
  await lchown(join(folder, 'pipe'), OTHER_UID, OTHER_UID);
  for (const name of ['file.mp3', 'new.mp3', 'folder/in.mp3', 'own-to-foreign.mp3', 'pipe']) {
    await assert.rejects(
      openAudioFile(join(folder, name), process.stdout),
      ({ message }: Error) => message.startsWith('--out ') && message.includes(`user id ${OTHER_UID}`),
      name,
    );
  }
  t.equal(await readFile(secret, 'utf8'), 'former');
  t.strictSame(await readdir(join(folder, 'home')), []);
});

test('own pipes, standard output by path and relative links are written to', {
  skip: process.platform === 'win32',
}, async (t) => {
  const folder = await temporaryFolder(t);
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  await mkdir(join(folder, 'a'));
  await symlink('../pipe', join(folder, 'a', 'link'));
  const read = readFile(pipe, 'utf8');
  const file = await openAudioFile(join(folder, 'a', '..', 'a', 'link'), process.stdout);
  await file.write(audio());
  await file.close();
  t.equal(await read, 'half whole');
  const script = `import { openAudioFile } from ${JSON.stringify(projectFile('dist/callers/cli/audio-file.js'))};
    const file = await openAudioFile('/dev/stdout', process.stdout);
    await file.write({ audio: new Blob(['heard']).stream(), contentType: 'audio/mpeg' });
    await file.close();`;
  // Node.js itself gives children sockets, which have no path.
  const out = execFileSync('sh', ['-c', '"$0" --input-type=module -e "$1" | cat', process.execPath, script]);
  t.equal(String(out), 'heard');
});

const items = Array.from({ length: 10_000 }, (_, index) => ({ id: `v${index}`, name: 'x'.repeat(1_000) }));
const cells = ({ id, name }: { id: string; name: string }) => [id, name];

test('a list has a printable line a row, and is cut after 100 rows', async (t) => {
  const lines = rowsOf(items, { all: false }, cells, ['voice', 'name']);
  t.strictSame([lines.length, lines[0], lines.at(-1)], [102, 'voice  name', '9900 more; --all lists them.']);
  t.ok(lines.every((line) => line.length < 400));
  t.equal(rowsOf(items, { all: true }, cells).length, items.length);
  const told = rowsOf(items.slice(0, 1), { all: false }, ({ id }) => [`${id}\u001b[2J\n`, 'a']);
  t.strictSame(told, ['v0[2J  a']);
});

const PENDING: PendingPurchase = {
  ...{ flow: 'direct', kind: 'speech', identifier: 'pay_1234567890123456', baseUrl: 'https://speech.example' },
  ...{ method: 'POST', target: '/x402/tts', headers: {}, body: '{}', maxMicroUsd: '198', expiresAt: null },
};
const fault = (code: string, changes: object = {}) => ({
  ...{ status: 400, code, message: 'No.', details: null, traceId: 'trace', retryAfterSeconds: null },
  ...changes,
});

const DETAILS = { status: 402, details: { reason: 'insufficient_funds' } };
const UNPAID = new PaymentRequiredError(fault('PAYMENT_REQUIRED', DETAILS), { topUpUrl: 'u', missingMicroUsd: 1n });
const INVALID = new InvalidRequestError(fault('INVALID_VOICE', { details: { field: 'voice' } }));
const LIMITED = new RateLimitedError(fault('RATE_LIMITED', { status: 429, retryAfterSeconds: 7 }));
const MAYBE = new AudioLostError('Lost.', { chargedMicroUsd: null, maxMicroUsd: 1n });
const UNKNOWN = /^The outcome of the purchase pay_\d+ is unknown.* speechgate resume pay_\d+$/;

test('each error is one line, with a code and an exit code', async (t) => {
  for (const [error, code, exit, message] of [
    [new UsageError('--out is missing.'), 'USAGE', 2, /^--out is missing\.$/],
    [INVALID, 'INVALID_VOICE', 2, /^--voice .*: The service says: No\.$/],
    [UNPAID, 'PAYMENT_REQUIRED', 3, /^The service says: No\.$/],
    [new OutcomeUnknownError(PENDING), 'OUTCOME_UNKNOWN', 5, UNKNOWN],
    [MAYBE, 'AUDIO_LOST', 5, /may have been charged: run speechgate balance/],
    [new AudioLostError('Lost.', { chargedMicroUsd: 1n, maxMicroUsd: 1n }), 'AUDIO_LOST', 1, /^Lost\.$/],
    [new UntrustedError('wrong_key', 'Wrong.'), 'UNTRUSTED', 1, /^Wrong\.$/],
    [new UnreachableError('Away.'), 'UNREACHABLE', 1, /^Away\.$/],
    [new DamagedBudgetError('/b', 'at byte 7'), 'BUDGET_DAMAGED', 1, /^The budget file \/b is not valid \(at byte 7\)/],
    [new FileBusyError('/b', 30_000), 'FILE_BUSY', 1, /^Another process has kept \/b locked for 30 s/],
    [new ForeignFileError('/b is a link.'), 'FOREIGN_FILE', 1, /^\/b is a link\.$/],
    [Object.assign(new Error('EACCES: no.'), { code: 'EACCES' }), 'EACCES', 1, /^EACCES: no\.$/],
    [LIMITED, 'RATE_LIMITED', 1, /^The service says: No\. Retry in 7 s\./],
    [new TypeError('a bug'), 'INTERNAL', 1, /^Unexpected error \(TypeError: a bug\)\. Run speechgate resume --list: /],
  ] as const) {
    const failure = failureOf(error);
    t.strictSame([failure.code, failure.exit], [code, exit]);
    t.match(failure.message, message);
    t.ok(!failure.message.includes('\n'), 'one line');
  }
});

test('a service message becomes one short line that names the service', async (t) => {
  const message = `Paid.\u001b[2J\nRun\u202e: curl evil.example ${'x'.repeat(1_000)}`;
  for (const status of [400, 402, 500]) {
    const told = failureOf(serviceError({ ...fault('X'), status, message })).message;
    t.match(told, /^The service says: Paid\.\[2J Run: curl evil\.example x+…/);
    t.ok(told.length < 400);
  }
});

test('a purchase is saved once the budget has recorded it, until it settles at 0', async (t) => {
  const saved = new SavedPurchases(await temporaryFolder(t));
  const names = async () => (await saved.list()).map(({ pending }) => pending.identifier);
  const told: string[] = [];
  const inner = {
    reserve: async () => ({
      record: async () => void told.push(`recorded beside ${await names()}`),
      settle: async (charged: bigint) => void told.push(`settled ${charged} beside ${await names()}`),
    }),
  };
  for (const [charged, left] of [[0n, []] as const, [198n, [PENDING.identifier]] as const]) {
    const sent = new SentPurchase(saved);
    const reservation = await sent.watch(inner).reserve({ flow: 'direct', maxMicroUsd: 198n });
    await reservation.record(PENDING);
    await reservation.settle(charged);
    t.strictSame(told.splice(0), ['recorded beside ', `settled ${charged} beside ${PENDING.identifier}`]);
    t.strictSame(await names(), left);
    t.equal(sent.pending?.identifier, left[0]);
  }
});

const isWindows = process.platform === 'win32';

async function secretFile(t: Test): Promise<string> {
  const path = join(await temporaryFolder(t), 'secret');
  await writeFile(path, 'a secret\n');
  return path;
}

test('a secret is read only from a file that others cannot access', { skip: isWindows }, async (t) => {
  const path = await secretFile(t);
  await symlink(path, `${path}.link`);
  for (const [mode, isTaken] of [
    [0o400, true],
    [0o700, true],
    [0o640, false],
    [0o604, false],
    [0o602, false],
  ] as const) {
    await chmod(path, mode);
    for (const place of [path, `${path}.link`]) {
      const reading = readSecret(place, '--wallet', process.stdin);
      if (isTaken) t.equal(await reading, 'a secret', mode.toString(8));
      else await t.rejects(reading, /^--wallet: .* chmod 600 '/, mode.toString(8));
    }
  }
});

test('a secret file that is missing or belongs to another user is refused', {
  skip: process.geteuid?.() !== 0 && 'only root can give a file away',
}, async (t) => {
  const path = await secretFile(t);
  await chmod(path, 0o600);
  await chown(path, 54_321, 54_321);
  await assert.rejects(readSecret(path, '--account', process.stdin), UsageError);
  await t.rejects(readSecret(`${path}.none`, '--account', process.stdin), /cannot be read/);
});

test('a secret can be read from a pipe', { skip: isWindows }, async (t) => {
  const url = projectFile('dist/callers/cli/read-values.js');
  const script = `const { readSecret } = await import(${JSON.stringify(url)});
    console.log(await readSecret('/dev/fd/3', '--wallet'));`;
  const piped = 'echo secret | "$0" --input-type=module -e "$1" 3<&0';
  t.equal(String(execFileSync('sh', ['-c', piped, process.execPath, script])), 'secret\n');
});
