// What a program for node does with a database. Prints what it got as JSON.
const { Client } = require("pg");

async function main(connectionString) {
  const client = new Client({ connectionString });
  await client.connect();
  const found = {};
  await client.query("CREATE TABLE noded (id INT PRIMARY KEY, s TEXT, j JSONB, t TIMESTAMPTZ, a INT[])");
  await client.query("INSERT INTO noded VALUES ($1, $2, $3, $4, $5)", [1, "x", { a: [1] }, new Date(0), [1, 2]]);
  found.row = (await client.query("SELECT * FROM noded WHERE id = $1", [1])).rows[0];
  found.prepared = (await client.query({ name: "q", text: "SELECT s FROM noded WHERE id = $1", values: [1] })).rows;
  try {
    await client.query("SELECT nope FROM noded");
  } catch (error) {
    found.error = [error.code, error.position];
  }
  await client.query("BEGIN");
  await client.query("INSERT INTO noded (id) VALUES (2)");
  await client.query("ROLLBACK");
  found.count = (await client.query("SELECT count(*) FROM noded")).rows[0].count;
  await client.end();
  console.log(JSON.stringify(found));
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
