import { type Message, structHasher } from '../crypto/eip712.ts';
import { PREPAID_TYPES } from './prepaid-types.ts';

/** The values of the fields that a prepaid request signs. */
export type PrepaidRequest = Message<typeof PREPAID_TYPES.PrepaidRequest>;

/** The request's part of the digest. */
export const hashPrepaidRequest = structHasher('PrepaidRequest', PREPAID_TYPES.PrepaidRequest);
