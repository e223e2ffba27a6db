import java.math.BigDecimal;
import java.net.URI;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.Statement;
import java.sql.Timestamp;

/** What a program with JDBC does with a database. Prints what it got in lines. */
public class JdbcClient {
    public static void main(String[] arguments) throws Exception {
        URI url = new URI(arguments[0]);
        String[] user = url.getUserInfo().split(":");
        String address = "jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath();
        try (Connection connection = DriverManager.getConnection(address, user[0], user[1])) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE TABLE jdbc (id INT PRIMARY KEY, s TEXT, n NUMERIC(8, 2), t TIMESTAMPTZ, "
                        + "d DOUBLE PRECISION)");
            }
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO jdbc VALUES (?, ?, ?, ?, ?)")) {
                for (int n = 0; n < 20; n++) {
                    insert.setInt(1, n);
                    insert.setString(2, "s" + n);
                    insert.setBigDecimal(3, new BigDecimal("1.50"));
                    insert.setTimestamp(4, new Timestamp(0));
                    insert.setDouble(5, n * 0.5);
                    insert.addBatch();
                }
                System.out.println("batch " + insert.executeBatch().length);
            }
            // The driver asks for the binary format from the fifth time on.
            try (PreparedStatement query = connection.prepareStatement("SELECT * FROM jdbc WHERE id = ?")) {
                for (int n = 0; n < 8; n++) {
                    query.setInt(1, n);
                    ResultSet row = query.executeQuery();
                    row.next();
                    System.out.println(row.getInt(1) + " " + row.getString(2) + " " + row.getBigDecimal(3) + " "
                            + row.getTimestamp(4).getTime() + " " + row.getDouble(5));
                }
            }
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(5);
                ResultSet rows = statement.executeQuery("SELECT id FROM jdbc ORDER BY id");
                int count = 0;
                while (rows.next()) {
                    count++;
                }
                System.out.println("fetched " + count);
            }
            connection.commit();
            DatabaseMetaData about = connection.getMetaData();
            StringBuilder columns = new StringBuilder("columns");
            ResultSet found = about.getColumns(null, "public", "jdbc", "%");
            while (found.next()) {
                columns.append(" ").append(found.getString("COLUMN_NAME")).append(":").append(found.getString("TYPE_NAME"));
            }
            System.out.println(columns);
            ResultSet key = about.getPrimaryKeys(null, "public", "jdbc");
            key.next();
            System.out.println("key " + key.getString("COLUMN_NAME"));
        }
    }
}
