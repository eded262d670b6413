import { type FacilitatorEvmSigner, toFacilitatorEvmSigner } from '@x402/evm';
import { encodeFunctionData, type Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { chainClient } from '../chain/chain-client.ts';

/**
 * The wallet that pays the gas of settlements. Contracts are asked as of now rather than as of the last block, which may
 * be seconds old on a chain where little happens.
 */
export function facilitatorSigner(
  rpcUrl: string,
  privateKey: Hex,
  confirmationTimeoutMs: number,
  onBroadcast: (transaction: Hex) => void,
): FacilitatorEvmSigner {
  const client = chainClient(rpcUrl);
  const account = privateKeyToAccount(privateKey);

  // One at a time: two transactions at once would take the same account nonce.
  let last: Promise<unknown> = Promise.resolve();
  const send = (transaction: { to: Hex; data: Hex }): Promise<Hex> => {
    const next = last.then(async () => {
      const gas = await client.estimateGas({ account, ...transaction, blockTag: 'pending' });
      const hash = await client.sendTransaction({ account, ...transaction, gas });
      onBroadcast(hash);
      return hash;
    });
    last = next.catch(() => undefined);
    return next;
  };

  return toFacilitatorEvmSigner(
    {
      address: account.address,
      readContract: (call) => client.readContract({ ...call, blockTag: 'pending' }),
      verifyTypedData: (typedData) => client.verifyTypedData(typedData as Parameters<typeof client.verifyTypedData>[0]),
      writeContract: ({ address, abi, functionName, args, dataSuffix }) => {
        const data = encodeFunctionData({ abi, functionName, args });
        return send({ to: address, data: dataSuffix ? `${data}${dataSuffix.slice(2)}` : data });
      },
      sendTransaction: send,
      waitForTransactionReceipt: (wait) => client.waitForTransactionReceipt(wait),
      getCode: (request) => client.getCode(request),
    },
    { confirmationTimeoutMs },
  );
}
