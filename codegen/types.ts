import openapiTS, { astToString, type OpenAPI3, type SchemaObject } from 'openapi-typescript';
import ts from 'typescript';
import type { Contract } from './model.ts';

const JSON_TYPES = `
/** What JSON can say; members that are undefined are left out. Amounts are no bigint here: write them as strings. */
export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;
export type JsonObject = { [name: string]: JsonValue | undefined };
`;

/**
 * `types.ts`: the contract's types. `int64` is a bigint, binary is bytes, and an object without declared members is a
 * JsonObject, so that a bigint, which JSON.stringify refuses, does not get into one.
 */
export async function generateTypes(contract: Contract): Promise<string> {
  const nodes = await openapiTS(structuredClone(contract.document) as unknown as OpenAPI3, {
    defaultNonNullable: false,
    rootTypes: true,
    rootTypesKeepCasing: true,
    rootTypesNoSchemaPrefix: true,
    silent: true,
    inject: JSON_TYPES,
    transform: (schema) => {
      const type = specialType(schema);
      if (type === undefined || !('nullable' in schema && schema.nullable)) return type;
      return ts.factory.createUnionTypeNode([type, ts.factory.createLiteralTypeNode(ts.factory.createNull())]);
    },
  });
  return astToString(nodes);
}

function specialType(schema: SchemaObject): ts.TypeNode | undefined {
  const { type, format } = schema as { type?: unknown; format?: string };
  if (type === 'integer' && format === 'int64') return ts.factory.createKeywordTypeNode(ts.SyntaxKind.BigIntKeyword);
  if (type === 'string' && format === 'binary') return ts.factory.createTypeReferenceNode('Uint8Array');
  if (type === 'object' && isFreeForm(schema)) return ts.factory.createTypeReferenceNode('JsonObject');
  return undefined;
}

function isFreeForm(schema: object): boolean {
  const { properties, additionalProperties, allOf, anyOf, oneOf } = schema as Record<string, unknown>;
  const declared = Object.keys(properties ?? {}).length > 0 || allOf || anyOf || oneOf;
  const open = additionalProperties === undefined || additionalProperties === true;
  return (
    !declared &&
    (open || (typeof additionalProperties === 'object' && Object.keys(additionalProperties ?? {}).length === 0))
  );
}
