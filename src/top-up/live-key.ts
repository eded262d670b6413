/** Whether a secret or restricted key of the card processor is one of its live mode. */
export const isLiveKey = (secretKey: string): boolean => /^(sk|rk)_live_/.test(secretKey);
