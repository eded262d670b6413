import { createSecretKey, randomBytes } from 'node:crypto';
import { CompactSign } from 'jose';
import { test } from 'tap';
import * as viem from 'viem';
import { createChallengeSigner } from '../../src/feedback/challenge-token.ts';
import { checksumAddress, keccak256 } from '../../src/lib/keccak.ts';
import { createTokenSigner } from '../../src/lib/signed-token.ts';
import * as abi from '../../src/payments/x402/abi.ts';
import { Quotes } from '../../src/payments/x402/quotes.ts';
import { createLinkSigner } from '../../src/speech/store/link-token.ts';

/** Bytes that keccak-256 takes in at once. */
const RATE = 136;
const LENGTHS = [0, 1, 32, RATE - 1, RATE, RATE + 1, 2 * RATE, 4096, 16_384, 16_385, 100_000];

test('keccak-256 matches viem for any length and returns separate digests', async (t) => {
  const inputs = LENGTHS.map((length) => randomBytes(length));
  const digests = inputs.map(keccak256);
  t.strictSame(
    digests.map((digest) => [...digest]),
    inputs.map((input) => [...viem.hexToBytes(viem.keccak256(input))]),
  );
});

test('the checksum of an address matches viem, in whatever case it was given', async (t) => {
  for (let times = 0; times < 100; times++) {
    const address = `0x${randomBytes(20).toString('hex')}` as const;
    t.equal(checksumAddress(address), viem.getAddress(address));
    t.equal(checksumAddress(`0x${address.slice(2).toUpperCase()}`), viem.getAddress(address));
  }
});

test('what is asked of a node is encoded as by viem', async (t) => {
  const address = `0x${randomBytes(20).toString('hex')}` as const;
  const value = BigInt(address);
  const encodings = ({ concat, numberToHex, pad, toEventSelector, toFunctionSelector }: typeof abi) => [
    ...[0n, 15n, 16n, value].map(numberToHex),
    concat([toFunctionSelector('balanceOf(address)'), pad(address), pad('0x0')]),
    toEventSelector('Transfer(address,address,uint256)'),
  ];
  t.strictSame(encodings(abi), encodings(viem));
});

/** Tokens that release 2.0.0 has signed with this secret, and that are still with its callers. */
const SECRET = 'a-former-secret-of-enough-characters';
const JOB = '0b8f4f0e-7c53-4a7f-9a0e-0d6d3b7f3c11';
const LINK = [
  'eyJhbGciOiJIUzI1NiIsImtpZCI6ImNidUxiOXhPVmdjIn0',
  'eyJhdWQiOiJqb2ItYXVkaW8iLCJzdWIiOiIwYjhmNGYwZS03YzUzLTRhN2YtOWEwZS0wZDZkM2I3ZjNjMTEiLCJleHAiOjQwNzA5MDg4MDB9',
  'sj7F7lS2_Ef4LpqGRQfQZAdrqXPApQPVlMJKgX4rOlM',
].join('.');
const QUOTE = [
  'eyJhbGciOiJIUzI1NiIsInR5cCI6InNwZWVjaGdhdGUtcXVvdGUiLCJraWQiOiJTejNvM0doMFFSSVgifQ',
  'eyJqdGkiOiI0MTZkMzgzNi1jNDQ2LTRhYWYtOWY4Ny1lNzcxYzNjODdlM2EiLCJpYXQiOjE3OTUzMTI0NjcsImV4cCI6MTc5NTMxMjUyNywibGVuIjo1LCJzaGEiOiJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiIiwibW9kIjoibSIsInZvaSI6InYiLCJzcGQiOjEsImFtdCI6IjUwMCIsIm5ldCI6ImVpcDE1NTo4NDUzIiwicGF5IjoiMHhjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkIn0',
  '2QriFt781HpAK5oJfvFbR1oYY7TGrwIGBEhy3vPaZow',
].join('.');
const CHALLENGE = [
  'eyJhbGciOiJIUzI1NiJ9',
  'eyJhdWQiOiJmZWVkYmFjayIsIndhbGxldCI6IjB4YWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYiIsInBheWxvYWRTaGEyNTYiOiJjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkIiwibm9uY2UiOiIzYjI0MTEwMS1lMmJiLTQyNTUtOGNhZi00MTM2YzU2NmE5NjIiLCJpc3N1ZWRBdCI6IjIwMzAtMDEtMDFUMDA6MDA6MDAuMTIzWiIsImV4cGlyZXNBdCI6IjIwMzAtMDEtMDFUMDA6MTA6MDAuMTIzWiJ9',
  '7KS623XPoYNjRmDP7hmDzqn5Wb4sY_DSizSbPkR1vG0',
].join('.');

const NEW_SECRET = 'the secret that signs now, of 32 bytes';

for (const secrets of [[SECRET], [NEW_SECRET, SECRET]] as const) {
  test(`tokens of an earlier release are still valid with ${secrets.length} secrets`, async (t) => {
    t.equal(await createLinkSigner('job-audio', secrets).verify(LINK, JOB), true);
    t.equal(
      await createLinkSigner('job-audio', secrets, () => new Date('2099-01-01T00:00:00Z')).verify(LINK, JOB),
      false,
    );
    t.equal((await new Quotes([...secrets], 60).read(QUOTE))?.amountMicroUsd, 500n);
    const challenge = await createChallengeSigner(secrets).open(CHALLENGE);
    t.strictSame(challenge?.expiresAt, new Date('2030-01-01T00:10:00.123Z'));
  });
}

test('one secret can sign every kind of token without confusion', async (t) => {
  const link = createLinkSigner('job-audio', [SECRET]);
  const ofPrepaid = await createLinkSigner('prepaid-audio', [SECRET]).sign(JOB, new Date('2099-01-01T00:00:00Z'));
  const untyped = await createTokenSigner([SECRET], {}).sign({ aud: 'job-audio', sub: JOB, exp: 4_070_908_800 });
  const tokens = [LINK, QUOTE, CHALLENGE, ofPrepaid, untyped];
  const read = async (token: string) => [
    await link.verify(token, JOB),
    (await new Quotes([SECRET], 60).read(token)) !== undefined,
    (await createChallengeSigner([SECRET]).open(token)) !== undefined,
  ];
  t.strictSame(await Promise.all(tokens.map(read)), [
    [true, false, false],
    [false, true, false],
    [false, false, true],
    [false, false, false],
    [false, false, false],
  ]);
});

test('a token must hold JSON, and a signer needs a secret', async (t) => {
  const signed = await new CompactSign(Buffer.from('words'))
    .setProtectedHeader({ alg: 'HS256' })
    .sign(createSecretKey(Buffer.from(SECRET)));
  t.equal(await createTokenSigner([SECRET], {}).open(signed), undefined);
  t.throws(() => createTokenSigner([], {}), TypeError);
});

test('the first secret signs, all verify, and a retired one does not', async (t) => {
  for (const kind of [{}, { typ: 'a kind', keyId: (secret: string) => secret.slice(0, 4) }]) {
    const former = await createTokenSigner([SECRET], kind).sign({ a: 1 });
    const rotated = createTokenSigner([NEW_SECRET, SECRET], kind);
    t.strictSame(await rotated.open(former), { a: 1 });
    const token = await rotated.sign({ a: 2 });
    t.strictSame(await createTokenSigner([NEW_SECRET], kind).open(token), { a: 2 });
    t.equal(await createTokenSigner([SECRET], kind).open(token), undefined);
  }
});

test('a token with another type in its header, or none, is refused', async (t) => {
  const [quote, other, plain] = [{ typ: 'quote' }, { typ: 'other' }, {}].map((kind) =>
    createTokenSigner([SECRET], kind),
  );
  const token = (await quote?.sign({ a: 1 })) ?? '';
  t.strictSame(await quote?.open(token), { a: 1 });
  t.strictSame([await other?.open(token), await plain?.open(token)], [undefined, undefined]);
});
