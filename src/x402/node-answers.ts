import { Ajv, type ValidateFunction } from 'ajv';
import type { Hex } from './envelope.ts';
import { RpcError } from './rpc.ts';

/** An event, as far as it is looked at. Quantities and data are hexadecimal. */
export interface Log {
  readonly address: string;
  readonly topics: readonly string[];
  readonly data: string;
  readonly logIndex: string;
  readonly blockNumber: string;
  readonly transactionHash: Hex;
}

export interface Receipt {
  readonly status: string;
  readonly blockNumber: string;
  readonly transactionHash: Hex;
  readonly logs: readonly Log[];
}

export interface BlockHeader {
  readonly number: string;
  readonly timestamp: string;
}

const hex = (digits: string) => ({ type: 'string', pattern: `^0x[0-9a-fA-F]${digits}$` });
const object = (properties: Record<string, object>) => ({
  type: 'object',
  required: Object.keys(properties),
  properties,
});

const QUANTITY = hex('{1,64}');
/** Of blocks and seconds: none comes near what a bigint of the database holds. */
const NUMBER = hex('{1,13}');
/** Of the logs of a block: an integer of the database. */
const INDEX = hex('{1,7}');
const HASH = hex('{64}');
const LOG = object({
  address: hex('{40}'),
  topics: { type: 'array', items: HASH },
  data: hex('*'),
  logIndex: INDEX,
  blockNumber: NUMBER,
  transactionHash: HASH,
});
const RECEIPT = object({
  status: QUANTITY,
  blockNumber: NUMBER,
  transactionHash: HASH,
  logs: { type: 'array', items: LOG },
});
const BLOCK = object({ number: NUMBER, timestamp: NUMBER });

const ajv = new Ajv();
const orNull = (schema: object) => ({ anyOf: [{ type: 'null' }, schema] });

/** What a node answers to a call, as the Ethereum JSON-RPC specification has it; anything else throws RpcError. */
export const readAnswer = {
  quantity: reader<string, bigint>(QUANTITY, BigInt),
  blockNumber: reader<string, bigint>(NUMBER, BigInt),
  code: reader<string>(hex('*')),
  logs: reader<readonly Log[]>({ type: 'array', items: LOG }),
  /** Null while the transaction is in no block. */
  receipt: reader<Receipt | null>(orNull(RECEIPT)),
  /** Null for a block that the node does not know. */
  block: reader<BlockHeader | null>(orNull(BLOCK)),
} as const;

function reader<Answer, Value = Answer>(
  schema: object,
  read: (answer: Answer) => Value = (answer) => answer as unknown as Value,
): (method: string, answer: unknown) => Value {
  const isValid: ValidateFunction<Answer> = ajv.compile<Answer>(schema);
  return (method, answer) => {
    if (isValid(answer)) return read(answer);
    throw new RpcError(`The chain's node answered ${method} with something that is no such answer.`);
  };
}
