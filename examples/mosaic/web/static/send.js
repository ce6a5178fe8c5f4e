// Sends a form to the server. The error is what the server said, in words for people.

export async function send(url, body) {
  let response;
  try {
    response = await fetch(url, { method: "POST", body, headers: { Accept: "application/json" } });
  } catch {
    throw new Error("The page does not reach its server. Is it running?");
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // An answer without JSON has nothing more to say than its status.
  }
  if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`);
  return answer;
}
