import type { GetPrepaidAudioRequest, GetPrepaidAudioResult } from '../../contract/operations.ts';
import type { Database } from '../../db/database.ts';
import { findAudioEnd } from '../../ledger/wallet-holds.ts';
import { isUuid } from '../../lib/uuid.ts';
import { PREPAID_AUDIO_SECONDS, type PrepaidAudioStore } from '../../payments/prepaid/prepaid-balance.ts';
import type { NonceReplay } from '../../payments/refusal.ts';
import { StoreError } from '../../speech/store/audio-store.ts';
import type { LinkSigner } from '../../speech/store/link-token.ts';
import type { OperationContext } from '../operations.ts';
import { failure } from '../structured-error.ts';
import { answerStoredAudio } from './stored-audio.ts';

export interface PrepaidAudioLinks {
  readonly baseUrl: string;
  readonly db: Database;
  readonly audio: PrepaidAudioStore;
  readonly signer: LinkSigner | undefined;
}

const HINTS = {
  invalid:
    'Repeat the identical prepaid request, which is not charged again: its 409 has a new link for the 10 minutes in which the audio is kept.',
  missing: 'Take the link from details.audio of the 409 response.',
};

export function getPrepaidAudio(
  parts: PrepaidAudioLinks,
  { params, query, headers }: GetPrepaidAudioRequest,
  context: OperationContext,
): Promise<GetPrepaidAudioResult> {
  const id = params.audioId.toLowerCase();
  const link = { signer: parts.signer, sig: query.sig, id, parameter: 'audioId', hints: HINTS, headers };
  return answerStoredAudio(link, context, async () => {
    const kept = isUuid(id) ? await findKept(parts, id) : undefined;
    if (!kept) {
      const message =
        'This audio is not stored; audio is kept for at most 10 minutes. Check audioId, or buy the speech again.';
      return failure('NOT_FOUND', message, { field: 'audioId' });
    }
    const { audio } = parts;
    return { open: audio.open.bind(audio, id), mimeType: 'audio/mpeg' as const, sizeBytes: kept.sizeBytes };
  });
}

/** Expiry and size of retained audio; undefined if there is none. @throws StoreError */
async function findKept({ db, audio }: PrepaidAudioLinks, id: string) {
  const end = await findAudioEnd(db, id, PREPAID_AUDIO_SECONDS);
  const found = end && (await audio.open(id));
  if (!found) return undefined;
  found.stream.destroy();
  return { end, sizeBytes: found.size };
}

/** The absolute link to the audio of a charged request (R52); undefined if the audio is not retained. */
async function linkTo(parts: PrepaidAudioLinks, id: string): Promise<string | undefined> {
  const kept = await findKept(parts, id).catch((error) => {
    if (!(error instanceof StoreError)) throw error;
    return undefined;
  });
  if (!kept) return undefined;
  const sig = await parts.signer?.sign(id, kept.end);
  return `${parts.baseUrl}/x402/tts/audio/${id}${sig === undefined ? '' : `?sig=${sig}`}`;
}

const MESSAGES: Readonly<Record<NonceReplay['state'], string>> = {
  pending:
    'The first of these identical requests is still running or was interrupted, so it is not known yet whether it is ' +
    'charged. Repeat it unchanged in a second; a new nonce is a new purchase.',
  charged:
    'This request was charged before, but its audio is not available now. Repeat it in a few seconds, which costs nothing; if there is still no audio, only a new purchase with a new nonce gets it.',
  restored: 'This request failed before. Sign it again with a new nonce. You were not charged.',
};
const KEPT =
  'This request was charged before. Fetch its audio from details.audio within 10 minutes of the charge; a new nonce is a new purchase.';

/** The 409 for a request identical to the one that spent its nonce (R60). */
export async function refuseReplay(parts: PrepaidAudioLinks, { state, payment, holdId }: NonceReplay) {
  const audio = state === 'charged' ? await linkTo(parts, holdId) : undefined;
  return failure('PREPAID_NONCE_REPLAYED', audio === undefined ? MESSAGES[state] : KEPT, {
    field: 'x-x402-nonce',
    rule: 'unique',
    state,
    ...(state !== 'pending' && { chargedMicroUsd: payment.amountMicroUsd }),
    ...(audio !== undefined && { audio }),
  });
}
