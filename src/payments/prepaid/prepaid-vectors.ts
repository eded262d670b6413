import { DEFAULT_ASSET, DEFAULT_NETWORK } from '../../config/network.ts';
import { encodeHeader, makeOffer } from '../x402/challenge.ts';
import type { Hex } from '../x402/envelope.ts';
import { TRANSFER_TYPES } from '../x402/signed-types.ts';

export const CANONICAL_QUERY_VECTORS = [
  { shows: 'no query', query: '', canonical: '' },
  { shows: 'sorted by name', query: 'voice=v&text=Hello', canonical: 'text=Hello&voice=v' },
  { shows: 'a plus is a space', query: 'text=Hello+world', canonical: 'text=Hello%20world' },
  { shows: '%20 is a space, %2B a plus', query: 'text=1%20%2B%201', canonical: 'text=1%20%2B%201' },
  { shows: 'percent-encoding in upper case', query: 'text=na%c3%afve', canonical: 'text=na%C3%AFve' },
  { shows: 'an emoji is UTF-8', query: 'text=%F0%9F%98%80', canonical: 'text=%F0%9F%98%80' },
  {
    shows: "! ' ( ) * and - _ . ~ stay as they are",
    query: 'text=%21%27%28%29%2A-_.%7E',
    canonical: "text=!'()*-_.~",
  },
  { shows: 'a repeated name, sorted by value', query: 'b=2&b=10&b=1', canonical: 'b=1&b=10&b=2' },
  { shows: 'empty values', query: 'b=&a', canonical: 'a=&b=' },
  {
    shows: 'UTF-16 order: U+1F600 begins with D83D, and so comes before U+FF5E',
    query: 'x=%EF%BD%9E&x=%F0%9F%98%80',
    canonical: 'x=%F0%9F%98%80&x=%EF%BD%9E',
  },
] as const;

const ADDRESS = '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266';
const EXPIRY = '1750000000';

interface SigningVector {
  readonly shows: string;
  readonly request: { readonly method: string; readonly target: string; readonly body?: string };
  readonly hashedText: string;
  readonly bodyHash: Hex;
  readonly maxAmountMicroUsd: string;
  readonly nonce: string;
  readonly structHash: Hex;
  readonly digest: Hex;
  readonly signature: string;
}

const signingVector = (vector: SigningVector) => {
  const { shows, request, hashedText, bodyHash, maxAmountMicroUsd, nonce, structHash, digest, signature } = vector;
  const path = request.target.replace(/\?.*/s, '');
  return {
    shows,
    request,
    hashedText,
    hashedBytes: `0x${Buffer.from(hashedText).toString('hex')}` as Hex,
    message: { account: ADDRESS, method: request.method, path, bodyHash, maxAmountMicroUsd, nonce, expiry: EXPIRY },
    structHash,
    digest,
    headers: {
      'x-x402-account': ADDRESS,
      'x-x402-nonce': nonce,
      'x-x402-expiry': EXPIRY,
      'x-x402-max-amount': maxAmountMicroUsd,
      'x-x402-signature': signature as Hex,
    },
  } as const;
};

/** Signed prepaid requests with all intermediate values, for implementers in any language. */
export const SIGNING_VECTORS = {
  warning: 'Everybody knows this key: never send anything to its address. The domain is an example and no service.',
  privateKey: '0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80',
  address: ADDRESS,
  domain: {
    name: 'example-Prepaid',
    version: '1',
    chainId: 8453,
    verifyingContract: '0x70997970C51812dc3A010C7d01b50e0d17dc79C8',
  },
  domainTypeHash: '0x8b73c3c69bb8fe3d512ecc4cf759cc79239f7b179b0ffacaa9a75d522b39400f',
  domainSeparator: '0x596ca5511db6517dab29b9b8143339704d68cd64166264796d8319f1aed65f37',
  requestTypeHash: '0x79d9f5ab4346064090b3950dc4240d7537cbac22226e6b6a956b73a658b02ffa',
  requests: [
    signingVector({
      shows: 'POST: the exact bytes of the body, in UTF-8',
      request: { method: 'POST', target: '/x402/tts', body: '{"text":"Grüße aus Zürich, 你好 😀"}' },
      hashedText: '{"text":"Grüße aus Zürich, 你好 😀"}',
      bodyHash: '0xfe5fcb1db7924d044a8b6f924a8829656cce5bd849cb16e9bb917dec648fbee5',
      maxAmountMicroUsd: '1000',
      nonce: '9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d',
      structHash: '0x83d93b4b10b82b31db85c1cba0fd6b72677af39ce68f7589dc7f572d693a61d8',
      digest: '0x854b0962a1feeae32d4566032a24de7553d9961a188c1f5c4ee49550345dc449',
      signature:
        '0x613ee7d87c12fc9ed59df78ce49c993d9d0e3b855fdb503d6cbbe7817551489f05' +
        '006e9ca3038438dfde05b03634df217f296ce27d1c6e55cc8e7b65c98c978e1b',
    }),
    signingVector({
      shows: 'GET: the canonical query, and the largest uint256',
      request: { method: 'GET', target: '/x402/tts?text=It%27s+50%25+off%2C%20caf%C3%A9+na%C3%AFve%21&speed=1' },
      hashedText: "speed=1&text=It's%2050%25%20off%2C%20caf%C3%A9%20na%C3%AFve!",
      bodyHash: '0xbf68c4e54d988ab6c812e9579848393daaeb0c9160b077435ee2dec461a2dbba',
      maxAmountMicroUsd: '115792089237316195423570985008687907853269984665640564039457584007913129639935',
      nonce: 'order:2026/0042~~',
      structHash: '0x720230ad2850fa0559b80120862af4f53aa1a9f4ffd5aecd630c88caf0c466c9',
      digest: '0x938ac11edff32d72dad05ec09fb9265fba35ee1066fbfc236e80f9e009f67516',
      signature:
        '0x16375ef46d2258ba6e1f109e3baf9618a0acce9e9142bfe3d476a285b100efc210' +
        '9799710ecc02788ebc94c4f41daf0ee12ad967fe7ff75d73d8e802413239701c',
    }),
    signingVector({
      shows: 'a balance read: the hash of nothing, and an amount of 0',
      request: { method: 'GET', target: '/x402/accounts/0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266' },
      hashedText: '',
      bodyHash: '0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470',
      maxAmountMicroUsd: '0',
      nonce: '1',
      structHash: '0x5b1248ba8577640d479c465ffc3555fc48ceeebbd00708fc6c6ace1a99c738ec',
      digest: '0xa2b5a25b809683c4bfb7b6cc478230ee628744cc93950ecdb52929c65dbc5729',
      signature:
        '0x3318ca0f95cf279728c94bfcdcb6b691785763016622192e13b4aa968c218ff84a' +
        'bc4f036623e9ef37d563d8abe0e408af39895199ec1434997893db68a5260d1c',
    }),
  ],
} as const;

const offer = makeOffer(
  { network: DEFAULT_NETWORK, chainId: 8453, address: DEFAULT_ASSET, name: 'USD Coin', version: '2' },
  198n,
  SIGNING_VECTORS.domain.verifyingContract,
);
const accepted = { ...offer, extra: { ...offer.extra } };
const authorization = {
  from: ADDRESS,
  to: accepted.payTo,
  value: accepted.amount,
  validAfter: '0',
  validBefore: EXPIRY,
  nonce: '0x5a1e9f3b7c2d4e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7',
} as const;
const signature = ('0xf716a97a21f25ac488150ecaf18b32d16ac69bf3a2d531e0ba5ef56a8fe859dc' +
  '66fcdb2af3b12e9aeae063364223b454435cf3d18b64bf09450be3e7f8d09ab31c') as Hex;
const payload = {
  x402Version: 2,
  payload: { authorization, signature },
  extensions: { 'payment-identifier': { info: { required: true, id: 'pay_7d5d747be160e280504c099d984bcfe0' } } },
  resource: { url: 'https://speech.example/x402/tts' },
  accepted,
};

/** A direct payment, signed by the key of `SIGNING_VECTORS`. */
export const PAYMENT_VECTOR = {
  warning: 'Everybody knows this key: never send anything to its address. The payment has expired.',
  privateKey: SIGNING_VECTORS.privateKey,
  shows: 'EIP-3009: a payment of 198 micro-USD for {"text":"Hello world"}; accepted is the offer of the challenge',
  request: { method: 'POST', target: '/x402/tts', body: '{"text":"Hello world"}' },
  typedData: {
    domain: { ...accepted.extra, chainId: 8453, verifyingContract: accepted.asset },
    types: { TransferWithAuthorization: [...TRANSFER_TYPES.TransferWithAuthorization] },
    primaryType: 'TransferWithAuthorization' as const,
    message: authorization,
  },
  digest: '0x9eba2516d8bc5cb8fd9bfa120b6b22287bebc2ad54264a082574f060d26e477c',
  signature,
  payload,
  headers: { 'payment-signature': encodeHeader(payload) },
};
