/** The part of the native binding that is used here; the package has no types of its own. */
declare module 'fs-native-extensions' {
  /**
   * Locks the whole file for this open file description, until `unlock`, its close or the end of the process, however
   * that comes. False while another description has it, be it of this process or of another one.
   */
  export function tryLock(fd: number): boolean;
  export function unlock(fd: number): void;
}
