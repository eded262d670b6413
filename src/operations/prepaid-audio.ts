import type { AudioStore } from '../audio/audio-store.ts';
import type { LinkSigner } from '../audio/link-token.ts';
import type { GetPrepaidAudioRequest, GetPrepaidAudioResult } from '../contract/operations.ts';
import type { Database } from '../db/database.ts';
import type { OperationContext } from '../http/operation-context.ts';
import { failure } from '../http/structured-error.ts';
import { findLostAnswer, type LostAnswer } from '../ledger/lost-answers.ts';
import { isUuid } from '../lib/uuid.ts';
import { lostAnswerKey } from '../payments/lost-answers.ts';
import type { Repeated } from '../payments/refusal.ts';
import { admitLink, askedRange, serveAudio, unlessUnreadable } from './stored-audio.ts';

/** How a deployment links to the audio of answers that did not arrive. */
export interface PrepaidLinks {
  readonly baseUrl: string;
  /** Undefined where links are unsigned: their ids can't be guessed. */
  readonly signer: LinkSigner | undefined;
}

export interface PrepaidAudioParts extends PrepaidLinks {
  readonly db: Database;
  readonly store: AudioStore;
}

/** The audio of a charged answer that did not arrive. In the order of R50. */
export const getPrepaidAudio = (
  { db, store, signer }: PrepaidAudioParts,
  { params, query, headers }: GetPrepaidAudioRequest,
  context: OperationContext,
): Promise<GetPrepaidAudioResult> =>
  unlessUnreadable(context, async () => {
    const id = params.audioId.toLowerCase();
    const { isSigned, limited } = await admitLink(signer, query.sig, id, context);
    if (limited) return limited;
    if (isSigned === false) {
      return failure('UNAUTHORIZED', 'sig is not valid for this audio, or no longer. Repeat the identical request.', {
        field: 'sig',
        rule: 'signature',
      });
    }
    const found = isUuid(id) ? await findLostAnswer(db, id) : undefined;
    if (!found) {
      const message = 'There is no such audio, or its 10 minutes are over, or its charge was given back.';
      return failure('NOT_FOUND', message, { field: 'audioId' });
    }
    if (signer && !isSigned) {
      return failure('UNAUTHORIZED', 'sig is missing. Take the link from details.audio of the 409.', {
        field: 'sig',
        rule: 'required',
      });
    }
    const { sizeBytes } = found;
    const audio = { key: lostAnswerKey(id), id, parameter: 'audioId', mimeType: 'audio/mpeg', sizeBytes } as const;
    return serveAudio(store, audio, askedRange(headers, context));
  });

/** Where an answer that did not arrive is fetched, as an absolute link (R52). */
async function linkTo({ baseUrl, signer }: PrepaidLinks, { id, expiresAt }: LostAnswer): Promise<string> {
  const sig = await signer?.sign(id, expiresAt);
  return `${baseUrl}/x402/tts/audio/${id}${sig === undefined ? '' : `?sig=${sig}`}`;
}

const MESSAGES: Readonly<Record<Repeated['state'], string>> = {
  pending: 'The first of these identical requests is not over yet. Repeat it in a second; a new nonce would buy anew.',
  charged:
    'This request was charged before. Its answer arrived, or can not be had any more; a new nonce would buy it anew.',
  restored: 'This request failed before, and nothing is charged for it. Sign it again with a new nonce.',
};
const LOST =
  'This request was charged before, and the answer did not arrive. Fetch its audio from details.audio within 10 minutes; ' +
  'a new nonce would buy it anew.';

/** The 409 of a request that is identical with the one that has spent its nonce. */
export async function answerRepeated(links: PrepaidLinks, { state, payment, audio }: Repeated) {
  return failure('PREPAID_NONCE_REPLAYED', audio ? LOST : MESSAGES[state], {
    ...{ field: 'x-x402-nonce', rule: 'unique', state },
    ...(state !== 'pending' && { chargedMicroUsd: payment.amountMicroUsd }),
    ...(audio && { audio: await linkTo(links, audio) }),
  });
}
