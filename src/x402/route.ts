import { type Route, routes } from '../contract/routes.ts';

/** An operation as the contract declares it, for its path and its limits. @throws when there is none of that id */
export function routeOf(operationId: string): Route {
  const route = routes.find((route) => route.operationId === operationId);
  if (!route) throw new Error(`The contract has no operation ${operationId}.`);
  return route;
}
