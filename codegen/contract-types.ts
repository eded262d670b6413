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
  return astToString(nodes.filter((node) => !isAliasOfOtherComponent(node)).map(withoutNevers));
}

/** Components that are no schemas are named by what holds them only. */
function isAliasOfOtherComponent(node: ts.Node): boolean {
  return ts.isTypeAliasDeclaration(node) && /^components\['(?!schemas')/.test(astToString([node.type]));
}

/** Leaves out the members that say only what is not there, such as `put?: never`. */
function withoutNevers(node: ts.Node): ts.Node {
  const isNever = (member: ts.Node) =>
    ts.isPropertySignature(member) &&
    member.questionToken !== undefined &&
    member.type?.kind === ts.SyntaxKind.NeverKeyword;
  const visitor =
    (context: ts.TransformationContext) =>
    (root: ts.Node): ts.Node => {
      const visit = (child: ts.Node): ts.Node | undefined =>
        isNever(child) ? undefined : ts.visitEachChild(child, visit, context);
      return ts.visitEachChild(root, visit, context);
    };
  return ts.transform(node, [visitor]).transformed[0] as ts.Node;
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
