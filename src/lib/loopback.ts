const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

export const isLoopback = (hostname: string): boolean => LOOPBACK.test(hostname);

/** Whether nobody on the way can read or change traffic to this URL. */
export const isConfidential = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));

const ALL_ADDRESSES: readonly string[] = ['0.0.0.0', '[::]'];

export function isLocalUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return /^https?:$/.test(protocol) && (isLoopback(hostname) || ALL_ADDRESSES.includes(hostname));
}
