import { sign } from 'node:crypto';
import type { Catalog } from '../../config/catalog.ts';
import { ASSET_DECIMALS, ASSET_SYMBOL, type Asset } from '../../config/network.ts';
import type { Payee } from '../../config/payees.ts';
import { currentKey, publicKeyJwk, type SigningKey } from '../../config/signing-keys.ts';
import { routeOf } from '../../contract/routes.ts';
import type { SignedServiceMetadata } from '../../contract/types.ts';
import type { Database } from '../../db/database.ts';
import { canonicalize } from '../../lib/canonical-json.ts';
import { formatUsd } from '../../lib/money.ts';
import { priceMicroUsd } from '../../speech/price.ts';
import { REPLAY_WINDOW_SECONDS } from './payment.ts';
import { PREPAID } from './prepaid-terms.ts';
import { PREPAID_SIGNING, prepaidDomainName } from './signed-types.ts';

const VALIDITY_MS = 600_000;

interface MetadataOptions {
  readonly baseUrl: string;
  readonly serviceName: string;
  readonly catalog: Catalog;
  readonly asset: Asset;
  readonly payees: readonly Payee[];
  readonly keys: readonly SigningKey[];
}

type Signed = { readonly at: number; readonly validMs: number; readonly document: SignedServiceMetadata };

/**
 * What clients may trust, under a key that they pinned out of band: network, payees, prices and keys (R37). `recovery` says
 * that charges are final: no USDC payment is ever refunded (R75).
 */
export class ServiceMetadata {
  readonly #db: Database;
  readonly #options: MetadataOptions;
  #signed: Signed | undefined;

  constructor(db: Database, options: MetadataOptions) {
    this.#db = db;
    this.#options = options;
  }

  /** Returns the metadata and how long it may be cached (R37); undefined once the key has expired. */
  async read(now = new Date()): Promise<{ document: SignedServiceMetadata; maxAgeSeconds: number } | undefined> {
    const key = currentKey(this.#options.keys);
    const leftMs = key.validUntil ? key.validUntil.getTime() - now.getTime() : Number.POSITIVE_INFINITY;
    if (leftMs <= 0) return undefined;
    if (!this.#signed || !isFresh(this.#signed, now)) {
      const validMs = Math.min(VALIDITY_MS, leftMs);
      const document = this.#sign(key, now, validMs, await this.#firstSeen());
      this.#signed = { at: now.getTime(), validMs, document };
    }
    const { at, validMs, document } = this.#signed;
    const maxAgeSeconds = Math.max(0, Math.floor((at + validMs / 2 - now.getTime()) / 1000));
    return { document, maxAgeSeconds };
  }

  async #firstSeen(): Promise<ReadonlyMap<string, Date>> {
    const rows = this.#options.payees.map(({ address }) => ({ address }));
    await this.#db
      .insertInto('x402_payee')
      .values(rows)
      .onConflict((conflict) => conflict.doNothing())
      .execute();
    const seen = await this.#db.selectFrom('x402_payee').select(['address', 'first_seen_at']).execute();
    return new Map(seen.map(({ address, first_seen_at }) => [address, first_seen_at]));
  }

  #sign(key: SigningKey, now: Date, validMs: number, firstSeen: ReadonlyMap<string, Date>): SignedServiceMetadata {
    const { baseUrl, serviceName, catalog, asset, payees, keys } = this.#options;
    const url = (operationId: string) => baseUrl + routeOf(operationId).path.replaceAll(/:(\w+)/g, '{$1}');
    const payload: SignedServiceMetadata['payload'] = {
      schemaVersion: '1',
      service: { name: serviceName, origin: baseUrl, metadataUrl: url('getServiceMetadata') },
      protocol: { name: 'x402', version: 2, scheme: 'exact' },
      payment: {
        network: asset.network,
        asset: { address: asset.address, symbol: ASSET_SYMBOL, name: asset.name, decimals: ASSET_DECIMALS },
        payees: payees.map(({ address, status, validFrom, validUntil }) => ({
          address,
          status,
          validFrom: (validFrom ?? firstSeen.get(address) ?? now).toISOString(),
          validUntil: validUntil?.toISOString() ?? null,
        })),
      },
      pricing: {
        currency: 'USD',
        models: catalog.models.map((model) => ({
          id: model.id,
          provider: model.provider,
          billingUnit: 'character',
          ratePerCharacterUsd: decimal(model.ratePicoUsd, 12),
          maxCharactersPerRequest: model.maxInputCharacters,
          maxChargeUsd: formatUsd(priceMicroUsd(model.maxInputCharacters, model.ratePicoUsd)),
        })),
        quoteEndpoint: url('createQuote'),
      },
      validity: {
        issuedAt: now.toISOString(),
        validFrom: now.toISOString(),
        validUntil: new Date(now.getTime() + validMs).toISOString(),
      },
      trust: {
        keys: keys.map((key) => ({
          keyId: key.keyId,
          algorithm: 'ES256',
          status: key.status,
          publicKeyJwk: publicKeyJwk(key),
          validFrom: key.validFrom.toISOString(),
          validUntil: key.validUntil?.toISOString() ?? null,
        })),
        rotationRule:
          'Accept a new key or payee only from metadata that verifies under a key which is trusted already and has ' +
          'not expired. Only the key with the status current signs.',
        bootstrapRule:
          'First get a key from the operator over another channel (out of band), and pin it. Never take a first key, ' +
          'network or payee from this document or from PAYMENT-REQUIRED.',
      },
      recovery: {
        paymentIdentifierRequired: true,
        replayWindowSeconds: REPLAY_WINDOW_SECONDS,
        chargesFinal: true,
        refunds: 'none',
        unknownOutcomeCode: 'PAYMENT_OUTCOME_UNKNOWN',
        automaticRetryOnUnknownOutcome: false,
      },
      prepaid: {
        supported: true,
        depositEndpoint: url('createDeposit'),
        balanceEndpoint: url('getPrepaidAccount'),
        accountIdentity: 'payer_evm_address',
        authentication: {
          scheme: 'eip712',
          primaryType: PREPAID_SIGNING.primaryType,
          domainName: prepaidDomainName(serviceName),
          domainVersion: PREPAID_SIGNING.domainVersion,
          chainId: asset.chainId,
          headers: [...PREPAID_SIGNING.headers],
          signatureTtlSeconds: PREPAID.signatureTtlSeconds,
          smartAccountSignaturesSupported: false,
        },
        minDepositMicroUsd: PREPAID.minDepositMicroUsd,
        maxDepositMicroUsd: PREPAID.maxDepositMicroUsd,
        withdrawable: false,
        settlementPerRequest: false,
      },
    };
    const signer = { key: key.privateKey, dsaEncoding: 'ieee-p1363' } as const;
    const value = sign('sha256', Buffer.from(canonicalize(payload)), signer).toString('base64url');
    const { keyId } = key;
    return { payload, signature: { algorithm: 'ES256', keyId, encoding: 'base64url-ieee-p1363', value } };
  }
}

/** Metadata is signed again after a quarter of its validity, well before half of it has passed (R37). */
function isFresh({ at, validMs }: Signed, now: Date): boolean {
  const ageMs = now.getTime() - at;
  return ageMs >= 0 && ageMs < validMs / 4;
}

function decimal(value: bigint, digits: number): string {
  const text = String(value).padStart(digits + 1, '0');
  const fraction = text.slice(-digits).replace(/0+$/, '');
  return text.slice(0, -digits) + (fraction && `.${fraction}`);
}
