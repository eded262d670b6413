/** The other sides of users' entries. They hold no balance and are only ever summed. */
export const contra = {
  /** Money received by card. */
  cardClearing: '00000000-0000-4000-8000-000000000001',
  /** Charges paid from card credit. */
  cardRevenue: '00000000-0000-4000-8000-000000000002',
  /** Money received in USDC. */
  usdcClearing: '00000000-0000-4000-8000-000000000003',
  /** Requests paid in USDC directly. */
  usdcRevenue: '00000000-0000-4000-8000-000000000004',
  /** Requests paid from prepaid balances. */
  prepaidRevenue: '00000000-0000-4000-8000-000000000005',
  /** What the operator has given to card accounts, or taken from them. */
  cardAdjustments: '00000000-0000-4000-8000-000000000006',
} as const;
