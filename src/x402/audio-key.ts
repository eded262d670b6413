/** Where the audio of a payment is kept. Whoever takes a reservation over has a fence, and so an object, of its own. */
export const paymentAudioKey = (paymentId: bigint, fence: number): string => `x402/${paymentId}-${fence}`;
