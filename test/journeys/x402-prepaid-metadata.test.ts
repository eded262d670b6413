import assert from 'node:assert/strict';
import { randomUUID, type webcrypto } from 'node:crypto';
import { wrapFetchWithPayment } from '@x402/fetch';
import { test } from 'tap';
import { type Address, keccak256, type LocalAccount, toHex } from 'viem';
import type { SignedServiceMetadata } from '../../src/contract/types.ts';
import { freePort } from '../../src/sandbox/free-port.ts';
import { PREPAID_TYPES } from '../../src/x402/prepaid-types.ts';
import { testChain, wallet } from '../support/chain.ts';
import { mineSteadily } from '../support/deposit.ts';
import { startGateway } from '../support/gateway.ts';
import { isSignedBy } from '../support/metadata.ts';
import { officialClient, startX402Gateway } from '../support/x402.ts';

const METADATA = '/.well-known/x402-service-metadata';
const { chain, skip } = await testChain();

test('the member prepaid is that of the specification, member by member', async (t) => {
  const gateway = await startGateway(t, { SERVICE_NAME: 'example', BASE_URL: 'https://speech.example' });
  assert.deepEqual((await gateway.call(METADATA)).json.payload.prepaid, {
    supported: true,
    depositEndpoint: 'https://speech.example/x402/deposit',
    balanceEndpoint: 'https://speech.example/x402/accounts/{address}',
    accountIdentity: 'payer_evm_address',
    authentication: {
      scheme: 'eip712',
      primaryType: 'PrepaidRequest',
      domainName: 'example-Prepaid',
      domainVersion: '1',
      chainId: 8453,
      headers: ['x-x402-account', 'x-x402-nonce', 'x-x402-expiry', 'x-x402-max-amount', 'x-x402-signature'],
      signatureTtlSeconds: 120,
      smartAccountSignaturesSupported: false,
    },
    minDepositMicroUsd: 100_000,
    maxDepositMicroUsd: 100_000_000,
    withdrawable: false,
    settlementPerRequest: false,
  });
});

/** A client that knows one key of the service and its address; all the rest is from what that key has signed. */
class MetadataClient {
  readonly #payer: LocalAccount;
  readonly #service: SignedServiceMetadata['payload'];

  private constructor(payer: LocalAccount, service: SignedServiceMetadata['payload']) {
    this.#payer = payer;
    this.#service = service;
  }

  static async of(payer: LocalAccount, origin: string, pinnedKey: webcrypto.JsonWebKey): Promise<MetadataClient> {
    const document = (await (await fetch(`${origin}${METADATA}`)).json()) as SignedServiceMetadata;
    assert.ok(await isSignedBy(pinnedKey, document));
    return new MetadataClient(payer, document.payload);
  }

  deposit(): Promise<Response> {
    const { depositEndpoint, minDepositMicroUsd } = this.#service.prepaid;
    return wrapFetchWithPayment(fetch, officialClient(this.#payer))(depositEndpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ amountMicroUsd: minDepositMicroUsd }),
    });
  }

  async speak(body: string): Promise<Response> {
    const url = `${this.#service.service.origin}/x402/tts`;
    const headers = { 'content-type': 'application/json', ...(await this.#sign('POST', url, body)) };
    return fetch(url, { method: 'POST', headers, body });
  }

  async balance(): Promise<Response> {
    const url = this.#service.prepaid.balanceEndpoint.replace('{address}', this.#payer.address);
    return fetch(url, { headers: await this.#sign('GET', url, '') });
  }

  async #sign(method: string, url: string, hashed: string): Promise<Record<string, string>> {
    const { authentication, minDepositMicroUsd } = this.#service.prepaid;
    const payee = this.#service.payment.payees.find(({ status }) => status === 'current');
    const message = {
      account: this.#payer.address,
      method,
      path: new URL(url).pathname,
      bodyHash: keccak256(toHex(hashed)),
      maxAmountMicroUsd: BigInt(minDepositMicroUsd),
      nonce: randomUUID(),
      expiry: BigInt(Math.floor(Date.now() / 1000) + authentication.signatureTtlSeconds),
    };
    const signature = await this.#payer.signTypedData({
      domain: {
        name: authentication.domainName,
        version: authentication.domainVersion,
        chainId: authentication.chainId,
        verifyingContract: payee?.address as Address,
      },
      types: PREPAID_TYPES,
      primaryType: authentication.primaryType,
      message,
    });
    const { account, nonce, expiry, maxAmountMicroUsd } = message;
    const values = [account, nonce, expiry, maxAmountMicroUsd, signature];
    return Object.fromEntries(authentication.headers.map((name, at) => [name, String(values[at])]));
  }
}

test('a client that knows the signed metadata only deposits, is served and reads its balance', { skip }, async (t) => {
  const port = await freePort(undefined);
  const origin = `http://127.0.0.1:${port}`;
  const gateway = await startX402Gateway(t, chain, {
    PORT: String(port),
    BASE_URL: origin,
    SERVICE_NAME: 'unheard-of',
  });
  mineSteadily(t, chain);
  const pinned = gateway.config.signingKeys?.find(({ status }) => status === 'current');
  const publicKey = { kty: 'EC', crv: 'P-256', ...pinned?.publicJwk };
  const client = await MetadataClient.of(await wallet(chain.client, 100_000n), origin, publicKey);

  const deposited = await client.deposit();
  assert.equal(deposited.status, 200, await deposited.clone().text());
  const spoken = await client.speak('{"text": "Größe"}');
  assert.equal(spoken.status, 200, await spoken.clone().text());
  const [charged, left] = ['x-x402-charged', 'x-x402-balance'].map((name) => Number(spoken.headers.get(name)));
  assert.deepEqual([charged, left], [5 * 18, 100_000 - 5 * 18]);
  const { balanceMicroUsd } = (await (await client.balance()).json()) as { balanceMicroUsd: number };
  assert.equal(balanceMicroUsd, left);
});
