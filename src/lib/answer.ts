/** The answer to a request, on its way to the caller. */
export interface Answer {
  /** Its last byte was handed to the connection, or the caller has gone. */
  isOver(): boolean;
  /** Calls the listener soon after that, as a rule. */
  onceOver(listener: () => void): void;
  /** What has not been sent yet is not sent any more. */
  breakOff(): void;
}
