/** What a payer has under way before one payment of his. */
export interface Exposure {
  /** Sum of the earlier authorizations whose transfer is still to come, in atomic units. */
  readonly unsettled: bigint;
  /** Earlier requests that are running. */
  readonly running: number;
  /** Those of them whose transfer may have landed, which is not recorded yet. */
  readonly settling: number;
  /** A settlement of his was refused or failed within the last hour. */
  readonly hasFailedLately: boolean;
}

/** As the function x402_exposure returns it. */
export interface ExposureRow {
  readonly unsettled: bigint;
  readonly running: bigint;
  readonly settling: bigint;
  readonly failed: boolean;
}

export const toExposure = ({ unsettled, running, settling, failed }: ExposureRow): Exposure => ({
  unsettled,
  running: Number(running),
  settling: Number(settling),
  hasFailedLately: failed,
});
