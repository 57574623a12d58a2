// SPDX-License-Identifier: Apache-2.0

/** A record as a class, of which the client derives the schema. */
public final class Order {
    public int id;
    public String city;
}
