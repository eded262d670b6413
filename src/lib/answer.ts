/** The answer to a request, on its way to the caller. */
export interface Answer {
  /** Its last byte was handed to the connection, or the caller has gone. */
  isOver(): boolean;
  /** Calls the listener soon after that, as a rule. */
  onceOver(listener: () => void): void;
  /** Once it is over: whether all of it was handed to the connection, and that had not broken by then. */
  wasHandedOver(): boolean;
  /**
   * Of an answer that was handed over: calls the listener once, with false when the connection ends with an error before
   * there is a sign that the caller has got it, and with true on such a sign, or when none is to be expected any more.
   */
  onceArrived(listener: (hasArrived: boolean) => void): void;
  /** Asks before bytes are handed to the operating system until it is over; where they may not be, the connection breaks. */
  sendOnlyWhile(maySend: () => boolean): void;
  /** What has not been sent yet is not sent any more. */
  breakOff(): void;
}
