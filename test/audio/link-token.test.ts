import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { SignJWT } from 'jose';
import { test } from 'tap';
import { createLinkSigner, MAX_TOKEN_LENGTH } from '../../src/audio/link-token.ts';

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
  t.test('opens the audio of its job', async () => {
    assert.equal(await signer.verify(await signer.sign(JOB, AT(60)), JOB), true);
  });

  t.test('does not open the audio of another job', async () => {
    const token = await signer.sign(JOB, AT(60));
    for (const other of ['', 'another', `${JOB} `, JOB.toUpperCase()]) {
      assert.equal(await signer.verify(token, other), false, other);
    }
  });

  t.test('is HS256, names its key without the secret, and holds audience, job and expiry only', async () => {
    const token = await signer.sign(JOB, new Date(START + 60_999));
    const [header, claims] = parts(token);
    const { kid, ...rest } = decode(header);
    assert.deepEqual(rest, { alg: 'HS256' });
    assert.match(kid, /^[A-Za-z0-9_-]{11}$/);
    assert.deepEqual(decode(claims), { aud: 'job-audio', sub: JOB, exp: START / 1000 + 60 });
  });

  t.test('is at most 1500 characters, and a job id too long for that is refused', async () => {
    assert.ok((await signer.sign('x'.repeat(900), AT(60))).length <= MAX_TOKEN_LENGTH);
    await assert.rejects(signer.sign('x'.repeat(1500), AT(60)), RangeError);
  });

  t.test('ends with the second that it names', async () => {
    let now = AT(0);
    const clocked = createLinkSigner('job-audio', [NEW], () => now);
    const token = await clocked.sign(JOB, AT(60));
    now = new Date(AT(60).getTime() - 1);
    assert.equal(await clocked.verify(token, JOB), true);
    now = AT(60);
    assert.equal(await clocked.verify(token, JOB), false);
    now = AT(1_000_000);
    assert.equal(await clocked.verify(token, JOB), false);
  });

  t.test('goes by the clock of the machine when it is given no other', async () => {
    const plain = createLinkSigner('job-audio', [NEW]);
    assert.equal(await plain.verify(await plain.sign(JOB, new Date(Date.now() + 60_000)), JOB), true);
    assert.equal(await plain.verify(await plain.sign(JOB, new Date(Date.now() - 60_000)), JOB), false);
  });
});

test('rotation of JOB_SIGNING_SECRET', async (t) => {
  t.test('a link of the old secret opens while that is in the list, wherever it stands', async () => {
    const token = await signerOf(OLD).sign(JOB, AT(60));
    assert.equal(await signerOf(NEW, OLD).verify(token, JOB), true);
    assert.equal(await signerOf(OLD, NEW).verify(token, JOB), true);
    assert.equal(await signerOf(NEW).verify(token, JOB), false);
  });

  t.test('the first secret signs', async () => {
    const token = await signerOf(NEW, OLD).sign(JOB, AT(60));
    assert.equal(await signerOf(NEW).verify(token, JOB), true);
    assert.equal(await signerOf(OLD).verify(token, JOB), false);
  });

  t.test('a key id that points to another secret of the list does not help', async () => {
    const [oldHeader] = parts(await signerOf(OLD).sign(JOB, AT(60)));
    const [, claims, signature] = parts(await signerOf(NEW).sign(JOB, AT(60)));
    assert.equal(await signerOf(NEW, OLD).verify(`${oldHeader}.${claims}.${signature}`, JOB), false);
  });

  t.test('without any secret there is no signer', async () => {
    assert.throws(() => createLinkSigner('job-audio', []), TypeError);
  });
});

test('what is no token of ours is false', async (t) => {
  const genuine = await signer.sign(JOB, AT(60));
  const [header, claims, signature] = parts(genuine);
  const ours = decode(header);
  const said = decode(claims);

  t.test('the forgery of these tests itself is genuine when nothing is changed', async () => {
    assert.equal(await signer.verify(forge(ours, said), JOB), true);
  });

  const otherBit = (text: string) => (text.startsWith('A') ? `B${text.slice(1)}` : `A${text.slice(1)}`);
  const { exp, ...endless } = said;
  const { kid, ...anonymous } = ours;
  const tokens: Record<string, string> = {
    empty: '',
    dots: '..',
    'four parts': `${genuine}.x`,
    'two parts': `${header}.${claims}`,
    'no signature': `${header}.${claims}.`,
    'another signature': `${header}.${claims}.${otherBit(signature)}`,
    'a signature cut short': genuine.slice(0, -4),
    'the job changed': `${header}.${encode({ ...said, sub: 'another' })}.${signature}`,
    'the expiry changed': `${header}.${encode({ ...said, exp: exp + 1 })}.${signature}`,
    'alg none without a signature': `${encode({ ...ours, alg: 'none' })}.${claims}.`,
    'alg none with the signature': `${encode({ ...ours, alg: 'none' })}.${claims}.${signature}`,
    'alg HS512 with the same secret': forge({ ...ours, alg: 'HS512' }, said, NEW, 'sha512'),
    'no alg': forge({ kid }, said),
    'no key id': forge(anonymous, said),
    'an unknown key id': forge({ ...ours, kid: 'unknown' }, said),
    'a key id that is no text': forge({ ...ours, kid: { toString: 1 } }, said),
    'another secret': forge(ours, said, OLD),
    'another audience': forge(ours, { ...said, aud: 'quote' }),
    'no audience': forge(ours, { sub: said.sub, exp }),
    'no job': forge(ours, { aud: said.aud, exp }),
    'no expiry': forge(ours, endless),
    'an expiry that is no number': forge(ours, { ...said, exp: '9999999999' }),
    'valid only later': forge(ours, { ...said, nbf: START / 1000 + 30 }),
    'a critical extension': forge({ ...ours, crit: ['x'], x: 1 }, said),
    'claims that are no object': forge(ours, [said]),
    'a header that is no JSON': `AAAA.${claims}.${signature}`,
    'white space around': ` ${genuine} `,
    'a genuine token, padded beyond 1500 characters': forge(ours, { ...said, padding: 'x'.repeat(1500) }),
    'a megabyte': 'x.'.repeat(500_000),
    'a null character': `${genuine}\0`,
    noise: randomBytes(300).toString('latin1'),
  };
  for (const [name, token] of Object.entries(tokens)) {
    t.test(name, async () => assert.equal(await signer.verify(token, JOB), false));
  }

  t.test('R48: no other spelling of the same bytes is a token, since each would have a limit of its own', async () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const lastCharacters = [...alphabet].map((last) => genuine.slice(0, -1) + last).filter((text) => text !== genuine);
    for (const spelling of [...lastCharacters, ...['=', ' ', '\n', '\t', '!'].map((end) => genuine + end)]) {
      assert.equal(await signer.verify(spelling, JOB), false, JSON.stringify(spelling.slice(-3)));
    }
  });

  t.test('a token of the same secret for another purpose', async () => {
    const token = await new SignJWT()
      .setProtectedHeader(ours)
      .setAudience('quote')
      .setSubject(JOB)
      .setExpirationTime(exp)
      .sign(Buffer.from(NEW));
    assert.equal(await signer.verify(token, JOB), false);
  });

  t.test('any single bit of the token flipped in its bytes', async () => {
    for (let part = 0; part < 3; part += 1) {
      const split = parts(genuine);
      const bytes = Buffer.from(split[part] as string, 'base64url');
      for (let bit = 0; bit < bytes.length * 8; bit += 1) {
        const flipped = Buffer.from(bytes);
        flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
        split[part] = flipped.toString('base64url');
        assert.equal(await signer.verify(split.join('.'), JOB), false, `part ${part}, bit ${bit}`);
      }
    }
  });
});
