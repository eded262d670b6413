declare module 'fs-native-extensions' {
  /** Locks this open file description until `unlock`, close or exit. Returns false while another one has the lock. */
  export function tryLock(fd: number): boolean;
  export function unlock(fd: number): void;
}
