import { createHmac, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { test } from 'tap';
import { parseAudioStoreSetting } from '../../../src/config/store-setting.ts';
import { parseRange } from '../../../src/http/routes/stored-audio.ts';
import { createLinkSigner } from '../../../src/speech/store/link-token.ts';
import { openAudioStore } from '../../../src/speech/store/open-store.ts';

const OLD = 'o'.repeat(32);
const NEW = 'n'.repeat(32);
const JOB = '7f0c5b7e-0c0f-4c51-9d8e-0b8f6f5d8a01';
const START = Date.parse('2026-01-01T00:00:00Z');
const AT = (seconds: number) => new Date(START + seconds * 1000);

/** A signer whose clock stands at START. */
const signerOf = (...secrets: string[]) => createLinkSigner('job-audio', secrets, () => AT(0));
const signer = signerOf(NEW);

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
const decode = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString());
const parts = (token: string) => token.split('.') as [string, string, string];

/** Signs as the service would, whatever the header and the claims say. */
function forge(header: object, claims: object, secret = NEW, hash = 'sha256'): string {
  const content = `${encode(header)}.${encode(claims)}`;
  return `${content}.${createHmac(hash, secret).update(content).digest('base64url')}`;
}

test('a signed link', async (t) => {
  t.test('opens the audio of its job', async (t) => {
    t.equal(await signer.verify(await signer.sign(JOB, AT(60)), JOB), true);
  });

  t.test('does not open the audio of another job', async (t) => {
    const token = await signer.sign(JOB, AT(60));
    for (const other of ['', 'another', `${JOB} `, JOB.toUpperCase()]) {
      t.equal(await signer.verify(token, other), false, other);
    }
  });

  t.test('is HS256, names its key and holds only audience, job and expiry', async (t) => {
    const token = await signer.sign(JOB, new Date(START + 60_999));
    const [header, claims] = parts(token);
    const { kid, ...rest } = decode(header);
    t.strictSame(rest, { alg: 'HS256' });
    t.match(kid, /^[A-Za-z0-9_-]{11}$/);
    t.strictSame(decode(claims), { aud: 'job-audio', sub: JOB, exp: START / 1000 + 60 });
  });

  t.test('expires at the second that it names', async (t) => {
    let now = AT(0);
    const clocked = createLinkSigner('job-audio', [NEW], () => now);
    const token = await clocked.sign(JOB, AT(60));
    now = new Date(AT(60).getTime() - 1);
    t.equal(await clocked.verify(token, JOB), true);
    now = AT(60);
    t.equal(await clocked.verify(token, JOB), false);
    now = AT(1_000_000);
    t.equal(await clocked.verify(token, JOB), false);
  });
});

test('an invalid token is refused', async (t) => {
  const genuine = await signer.sign(JOB, AT(60));
  const [header, claims, signature] = parts(genuine);
  const ours = decode(header);
  const said = decode(claims);

  const otherBit = (text: string) => (text.startsWith('A') ? `B${text.slice(1)}` : `A${text.slice(1)}`);
  const { exp, ...endless } = said;
  const { kid, ...anonymous } = ours;
  const tokens: Record<string, string> = {
    empty: '',
    'two parts': `${header}.${claims}`,
    'no signature': `${header}.${claims}.`,
    'another signature': `${header}.${claims}.${otherBit(signature)}`,
    'the job changed': `${header}.${encode({ ...said, sub: 'another' })}.${signature}`,
    'alg none without a signature': `${encode({ ...ours, alg: 'none' })}.${claims}.`,
    'alg HS512 with the same secret': forge({ ...ours, alg: 'HS512' }, said, NEW, 'sha512'),
    'no key id': forge(anonymous, said),
    'an unknown key id': forge({ ...ours, kid: 'unknown' }, said),
    'another secret': forge(ours, said, OLD),
    'another audience': forge(ours, { ...said, aud: 'quote' }),
    'no job': forge(ours, { aud: said.aud, exp }),
    'no expiry': forge(ours, endless),
    'valid only later': forge(ours, { ...said, nbf: START / 1000 + 30 }),
    'white space around': ` ${genuine} `,
    'a genuine token, padded beyond 1500 characters': forge(ours, { ...said, padding: 'x'.repeat(1500) }),
    noise: randomBytes(300).toString('latin1'),
  };
  for (const [name, token] of Object.entries(tokens)) t.equal(await signer.verify(token, JOB), false, name);

  t.test('a key id of another secret in the list', async (t) => {
    const [oldHeader] = parts(await signerOf(OLD).sign(JOB, AT(60)));
    t.equal(await signerOf(NEW, OLD).verify(`${oldHeader}.${claims}.${signature}`, JOB), false);
  });

  t.test('R48: another encoding of the same bytes is not a token', async (t) => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const lastCharacters = [...alphabet].map((last) => genuine.slice(0, -1) + last).filter((text) => text !== genuine);
    for (const spelling of [...lastCharacters, ...['=', ' ', '\n', '\t', '!'].map((end) => genuine + end)]) {
      t.equal(await signer.verify(spelling, JOB), false, JSON.stringify(spelling.slice(-3)));
    }
  });
});

const cases: { header: string | undefined; size?: number; expected: ReturnType<typeof parseRange>; why: string }[] = [
  { header: undefined, expected: 'whole', why: 'no header' },
  { header: 'bytes=0-499', expected: { start: 0, end: 499 }, why: 'first and last byte' },
  { header: 'bytes=0-0', expected: { start: 0, end: 0 }, why: 'one byte' },
  { header: 'bytes=950-', expected: { start: 950, end: 999 }, why: 'from a byte on' },
  { header: 'bytes=900-5000', expected: { start: 900, end: 999 }, why: 'the end is cut to the size' },
  { header: 'bytes=-50', expected: { start: 950, end: 999 }, why: 'the last bytes' },
  { header: 'bytes=-5000', expected: { start: 0, end: 999 }, why: 'a suffix longer than the whole' },
  { header: `bytes=0-${'9'.repeat(400)}`, expected: { start: 0, end: 999 }, why: 'a huge end' },
  { header: 'Bytes=1-2', expected: { start: 1, end: 2 }, why: 'the unit ignores letter case' },
  { header: 'bytes=,1-2,', expected: { start: 1, end: 2 }, why: 'empty list elements are ignored' },

  { header: 'bytes=1000-', expected: 'unsatisfiable', why: 'begins at the end' },
  { header: 'bytes=-0', expected: 'unsatisfiable', why: 'a suffix of no bytes' },
  { header: 'bytes=0-', size: 0, expected: 'unsatisfiable', why: 'an empty object has no first byte' },
  { header: 'bytes=-5', size: 0, expected: 'whole', why: 'an empty object is returned whole' },

  { header: 'bytes=0-1,5-6', expected: 'whole', why: 'more than one range' },
  { header: 'seconds=0-1', expected: 'whole', why: 'another unit' },
  { header: 'bytes=5-4', expected: 'whole', why: 'an end before the start is ignored' },
  { header: 'bytes=', expected: 'whole', why: 'no range at all' },
  { header: 'bytes=a-b', expected: 'whole', why: 'no numbers' },
  { header: 'bytes=+1-3', expected: 'whole', why: 'a sign' },
];

test('RFC 9110 section 14: the range of a request', async (t) => {
  for (const { header, size = 1000, expected, why } of cases) t.strictSame(parseRange(header, size), expected, why);
});

const settingCases: { setting: string; expected: ReturnType<typeof parseAudioStoreSetting> }[] = [
  { setting: 'file:/var/lib/audio', expected: { kind: 'file', path: '/var/lib/audio' } },
  { setting: 'file:///var/lib/audio/', expected: { kind: 'file', path: '/var/lib/audio' } },
  { setting: 'file:some/audio', expected: { kind: 'file', path: join(process.cwd(), 'some/audio') } },
  { setting: 's3://voices/', expected: { kind: 's3', bucket: 'voices', prefix: '' } },
  { setting: 's3://my.voices-1/a/b_c.d/', expected: { kind: 's3', bucket: 'my.voices-1', prefix: 'a/b_c.d' } },
  { setting: '/var/lib/audio', expected: undefined },
  { setting: 's3://', expected: undefined },
  { setting: 's3://Voices', expected: undefined },
  { setting: 's3://voices-/a', expected: undefined },
  { setting: 's3://voices/a/../b', expected: undefined },
  { setting: 's3://key:secret@voices/a', expected: undefined },
];

test('AUDIO_STORE is a folder or a bucket, and nothing else', async (t) => {
  for (const { setting, expected } of settingCases) {
    t.strictSame(parseAudioStoreSetting(setting), expected, setting);
    if (!expected) t.throws(() => openAudioStore(setting), TypeError);
  }
});
