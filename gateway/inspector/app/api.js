// The interface of the inspector's own port: JSON in, JSON out, errors as errors.

export class Fault extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Status 0 says that nobody answered. */
async function asked(path, options) {
  return fetch(path, options).catch(() => { throw new Fault("The inspector does not answer: was it stopped?"); });
}

async function answered(response) {
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Fault(found?.error?.message ?? `the inspector answered with ${response.status}`, response.status);
  return found;
}

export async function get(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value));
  return answered(await asked(`${path}${query.size ? `?${query}` : ""}`));
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Toolgate-Inspector": "1" };
  return answered(await asked(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

export const rowPath = (id, more = "") => `/api/rows/${encodeURIComponent(id)}${more}`;
