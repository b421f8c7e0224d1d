// The interface of the inspector's own port: JSON in, JSON out, errors as errors.

export class Fault extends Error {}

async function answered(response) {
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Fault(found?.error?.message ?? `the inspector answered with ${response.status}`);
  return found;
}

export async function get(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value));
  return answered(await fetch(`${path}${query.size ? `?${query}` : ""}`));
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Toolgate-Inspector": "1" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

export const rowPath = (id, more = "") => `/api/rows/${encodeURIComponent(id)}${more}`;
