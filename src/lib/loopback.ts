const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** Whether the host name of a URL is this machine's own, which nobody else can listen in on. */
export const isLoopback = (hostname: string): boolean => LOOPBACK.test(hostname);

/** Whether nobody on the way can read or change what is exchanged with this address. */
export const isConfidential = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname));

/** A program that listens on all addresses names itself by these. */
const ALL_ADDRESSES: readonly string[] = ['0.0.0.0', '[::]'];

/** Whether it is the HTTP address of a program on this machine. */
export function isLocalUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname } = new URL(text);
  return /^https?:$/.test(protocol) && (isLoopback(hostname) || ALL_ADDRESSES.includes(hostname));
}
