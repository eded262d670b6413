import type { FeedbackReceipt } from '../../contract/types.ts';
import { checkPending, resolveDeposit } from './buy.ts';
import type { Quote } from './catalog.ts';
import { AMOUNT, CLIENT_OPTIONS, checkedOptions, TRUST_OPTIONS } from './check-options.ts';
import { type Deposit, deposit, depositOf, readDeposit } from './deposit.ts';
import { readDirect, readVerifiedQuote } from './direct-x402.ts';
import { SpeechgateError } from './errors.ts';
import { type Feedback, type MessageSigner, sendFeedback } from './feedback.ts';
import type { Service } from './payment-way.ts';
import type { PendingPurchase } from './pending-purchase.ts';
import { readPrepaid } from './prepaid.ts';
import type { SpeechOrder } from './speech.ts';
import { type CallOptions, type ClientOptions, openService, requireWay, SpeechClient } from './speech-client.ts';
import {
  type FollowedTrust,
  type Metadata,
  type PinnedKey,
  requireMetadata,
  TrustedMetadata,
  type TrustListener,
} from './trusted-metadata.ts';

export interface SpeechgateOptions extends ClientOptions {
  /** The operator's keys, received out of band, or the value that `onTrust` received. Required to pay with a wallet. */
  readonly trust?: readonly PinnedKey[] | FollowedTrust;
  /** Called after each verification of newer metadata, with the `trust` to store for the next client. */
  readonly onTrust?: TrustListener;
}

export interface DepositCallOptions extends CallOptions {
  /** Awaited before the deposit is sent: store `pending` for `resumeDeposit`. If it throws, nothing is sent. */
  readonly onPending?: (pending: PendingPurchase) => Promise<void>;
}

/** Pays from card credit and from wallets, and verifies the service by pinned keys. */
export class Speechgate extends SpeechClient {
  readonly #service: Service;
  readonly #options: ClientOptions;

  constructor(options: SpeechgateOptions) {
    const checked = checkedOptions('Speechgate', options, { ...CLIENT_OPTIONS, ...TRUST_OPTIONS });
    const { trust = [], onTrust, ...clientOptions } = checked;
    const { readers, ...service } = openService(clientOptions);
    const isPinned = 'metadata' in trust || trust.length > 0;
    const opened = {
      ...service,
      metadata: isPinned ? new TrustedMetadata(service.api, service.baseUrl, trust, onTrust) : undefined,
      readers: { ...readers, direct: readDirect, prepaid: readPrepaid, deposit: readDeposit },
    };
    super(clientOptions, opened);
    this.#service = opened;
    this.#options = clientOptions;
  }

  override quote(order: SpeechOrder, { signal }: CallOptions = {}): Promise<Quote> {
    return readVerifiedQuote(order, this.#service, signal);
  }

  /**
   * Pays USDC into the wallet's prepaid balance. Not refundable. Caps and budgets count spending, not deposits.
   * @throws OutcomeUnknownError: pass its `pending` to `resumeDeposit`
   */
  async deposit(amountMicroUsd: bigint, { signal, onPending }: DepositCallOptions = {}): Promise<Deposit> {
    checkedOptions('deposit', { amountMicroUsd }, { amountMicroUsd: AMOUNT });
    const { wallet } = requireWay(this.#options);
    if (!wallet) throw new SpeechgateError('`pay` has no wallet. Use prepaid(wallet) to deposit.');
    const { timeoutMs } = this.#options;
    return deposit(wallet, amountMicroUsd, this.#service, { signal, timeoutMs, onPending });
  }

  async resumeDeposit(pending: PendingPurchase, { signal }: CallOptions = {}): Promise<Deposit> {
    checkPending(pending, 'deposit', this.#service);
    const { timeoutMs } = this.#options;
    return depositOf(await resolveDeposit(pending, this.#service, { signal, timeoutMs }));
  }

  feedback(wallet: MessageSigner, feedback: Feedback, { signal }: CallOptions = {}): Promise<FeedbackReceipt> {
    return sendFeedback(wallet, feedback, this.#service, signal);
  }

  /** Verified with the pinned keys. @throws UntrustedError */
  async metadata(): Promise<Metadata> {
    return requireMetadata(this.#service.metadata).read();
  }

  /** The trusted keys, rotations included. Pass them as `trust` to the next client. */
  get trustedKeys(): readonly PinnedKey[] {
    return requireMetadata(this.#service.metadata).keys;
  }
}
