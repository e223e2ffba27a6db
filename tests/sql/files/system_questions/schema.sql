CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE SCHEMA sales;
CREATE SEQUENCE ticket START WITH 100 INCREMENT BY 5 MINVALUE 10 MAXVALUE 9000 CACHE 1 CYCLE;
CREATE TABLE author (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, born date, mood mood DEFAULT 'ok', CONSTRAINT author_name_key UNIQUE (name));
CREATE TABLE book (
  id integer NOT NULL, author_id bigint NOT NULL, title varchar(200) NOT NULL, isbn char(13), price numeric(10,2) DEFAULT 9.99,
  net integer, gross integer GENERATED ALWAYS AS (net * 2) STORED, tags text[], ratings integer[], meta jsonb, raw json,
  cover bytea, printed timestamp, sold timestamptz DEFAULT now(), opens time, takes interval, code uuid, weight real, size double precision,
  pages smallint DEFAULT 0, available boolean NOT NULL DEFAULT true, score numeric,
  CONSTRAINT book_pkey PRIMARY KEY (id), CONSTRAINT book_isbn_key UNIQUE (isbn), CONSTRAINT book_price_check CHECK (price > 0),
  CONSTRAINT book_author_id_fkey FOREIGN KEY (author_id) REFERENCES author (id) ON DELETE CASCADE);
CREATE INDEX book_title_idx ON book (title);
CREATE INDEX book_price_desc_idx ON book (price DESC, id) INCLUDE (pages);
CREATE UNIQUE INDEX book_lower_idx ON book (lower(title));
CREATE INDEX book_cheap_idx ON book (author_id) WHERE price < 10;
CREATE TABLE sales.orders (id serial PRIMARY KEY, book_id integer REFERENCES book (id) ON DELETE SET NULL ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED, quantity integer NOT NULL DEFAULT 1, note text DEFAULT 'none', placed timestamptz);
CREATE TABLE sales.lines (order_id integer, line integer, amount numeric(12,4), CONSTRAINT lines_pkey PRIMARY KEY (order_id, line), CONSTRAINT lines_order_id_fkey FOREIGN KEY (order_id) REFERENCES sales.orders (id), CONSTRAINT lines_amount_check CHECK (amount >= 0 AND line > 0));
CREATE TABLE "Odd Name" ("Key" integer PRIMARY KEY, "select" text, "with ""quotes""" text);
CREATE VIEW cheap AS SELECT id, title, price FROM book WHERE price < 10;
CREATE VIEW sales.totals AS SELECT book_id, sum(quantity) AS total FROM sales.orders GROUP BY book_id;
COMMENT ON TABLE book IS 'what is printed';
COMMENT ON COLUMN book.title IS 'as on the cover';
COMMENT ON INDEX book_title_idx IS 'by title';
COMMENT ON CONSTRAINT book_price_check ON book IS 'not free';
COMMENT ON SCHEMA sales IS 'what is sold';
COMMENT ON VIEW cheap IS 'under ten';
COMMENT ON SEQUENCE ticket IS 'numbers';
COMMENT ON TYPE mood IS 'how one feels';
